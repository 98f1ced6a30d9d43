"use strict";
// The crosshair: shows, for the period under the pointer, every panel's values and the reason of the decision. Texts
// are only ever set as text content.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const panels = Array.from(document.querySelectorAll(".panels .panel > svg"));
  const crosses = panels.map((panel) => panel.querySelector(".cross"));
  const [from, to] = data.span;
  const [left, right, width] = data.axis;
  const longest = data.runs.reduce((a, b) => (b.at.length > a.at.length ? b : a), data.runs[0]);
  if (!longest || longest.at.length === 0) return;
  let selected = -1;

  // The last point that began at or before a time; -1 before the first and after the run's end.
  function pointAt(run, time) {
    if (run.at.length === 0 || time < run.at[0] || time > run.end) return -1;
    let low = 0;
    let high = run.at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (run.at[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  function element(name, text, className) {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  function show(time, clientX, clientY) {
    const x = left + ((time - from) / (to - from || 1)) * (right - left);
    for (const cross of crosses) {
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      cross.classList.add("on");
    }
    tip.replaceChildren();
    const table = element("table");
    const head = table.createTHead().insertRow();
    head.append(element("th"));
    const points = data.runs.map((run) => pointAt(run, time));
    const labels = [];
    data.runs.forEach((run, number) => {
      const point = points[number];
      const title = element("th", undefined, "n");
      title.append(element("span", undefined, "dot " + run.colour), run.law);
      head.append(title);
      if (number === 0 || labels.length === 0) {
        head.firstChild.textContent =
          point < 0 ? "" : run.clock[point] + (run.each > 1 ? ", " + run.each + " periods from " : ", period ") + run.index[point];
      }
      for (const series of run.series) if (!labels.includes(series.label)) labels.push(series.label);
    });
    for (const label of labels) {
      const row = element("tr");
      let known = false;
      row.append(element("td", label));
      data.runs.forEach((run, number) => {
        const series = run.series.find((one) => one.label === label);
        const value = series && points[number] >= 0 ? series.values[points[number]] : null;
        const worth = value !== null && value !== undefined && !(series.quiet && value === 0);
        known = known || worth;
        row.append(element("td", worth ? value + (series.unit ? " " + series.unit : "") : "", "n"));
      });
      if (known) table.append(row);
    }
    tip.append(table);
    data.runs.forEach((run, number) => {
      const why = points[number] >= 0 ? run.why[points[number]] : "";
      if (why) {
        const line = element("p");
        if (data.runs.length > 1) line.append(element("span", undefined, "dot " + run.colour));
        line.append(why);
        tip.append(line);
      }
    });
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const beside = clientX + 18 + box.width > innerWidth ? clientX - box.width - 18 : clientX + 18;
    tip.style.left = Math.max(4, beside) + "px";
    tip.style.top = Math.max(4, Math.min(clientY + 14, innerHeight - box.height - 4)) + "px";
  }

  function hide() {
    tip.hidden = true;
    for (const cross of crosses) cross.classList.remove("on");
  }

  for (const panel of panels) {
    panel.setAttribute("tabindex", "0");
    panel.addEventListener("pointermove", (event) => {
      const box = panel.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * width;
      if (x < left || x > right) return hide();
      const time = from + ((x - left) / (right - left)) * (to - from);
      selected = pointAt(longest, time);
      show(time, event.clientX, event.clientY);
    });
    panel.addEventListener("pointerleave", hide);
    panel.addEventListener("blur", hide);
    panel.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") return hide();
      if (!step) return;
      event.preventDefault();
      selected = Math.max(0, Math.min(longest.at.length - 1, selected + step));
      // The middle of the point, so that every run's point is the one drawn there.
      const next = selected + 1 < longest.at.length ? longest.at[selected + 1] : longest.end;
      const time = (longest.at[selected] + next) / 2;
      const box = panel.getBoundingClientRect();
      const x = left + ((time - from) / (to - from || 1)) * (right - left);
      show(time, box.left + (x / width) * box.width, box.top + 20);
    });
  }
})();
