"""Plots the tables of crates/physics/examples/curves.rs beside published curves: TABLES PICTURE."""

import csv
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# Share of the rated power of a processor at 0, 10, 50 and 100 % load, over many kinds (Boavizta's mean profile), and an
# eleven-point server curve of the SPECpower kind, in watts.
PROCESSORS = [(0.0, 0.12), (0.1, 0.32), (0.5, 0.75), (1.0, 1.02)]
SERVER = [86, 89.4, 92.6, 96, 99.5, 102, 106, 108, 112, 114, 117]
PLATFORM_W = 20.0

curves = defaultdict(list)
with open(sys.argv[1], newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        curves[row["curve"]].append((float(row["x"]), float(row["watts"])))


def draw(axes, points, *args, **kwargs):
    axes.plot([x for x, _ in points], [y for _, y in points], *args, **kwargs)


figure, (sleep, load) = plt.subplots(1, 2, figsize=(12, 4.8))
busy = curves["busy"][0][1]
for state in ("C1E", "C3", "C6"):
    draw(sleep, curves[state], label=f"model: {state}", linewidth=2.4 if state == "C6" else 1.2)
sleep.axhline(curves["shallow"][0][1], color="grey", linestyle=":", label="model: awake, idle (C1)")
sleep.axhline(busy, color="black", linestyle="--", linewidth=0.8, label="model: busy")
sleep.axvspan(10, 300, color="tab:red", alpha=0.10, label="measured: C6 dearer than staying up (< 300 µs)")
sleep.axvspan(1000, 5000, color="tab:green", alpha=0.10, label="measured: C6 saves (> 1,000 µs)")
sleep.set(xscale="log", xlim=(10, 5000), ylim=(0, 1.1 * busy), xlabel="length of an idle period, µs", ylabel="W per core")
sleep.set_title("One core, E5-2650 v4 (REEF, Figure 2)")
sleep.legend(fontsize=8)


def shares(name):
    return [(x, watts - PLATFORM_W) for x, watts in curves[name]]


for name, colour in (("skylake", "tab:blue"), ("broadwell", "tab:orange")):
    full = shares(f"{name} by rates")[-1][1]
    by_rates = [(x, watts / full) for x, watts in shares(f"{name} by rates")]
    simulated = [(x, watts / full) for x, watts in shares(f"{name} simulated")]
    draw(load, by_rates, color=colour, label=f"model: {name} processor, by rates")
    draw(load, simulated, "o", color=colour, markersize=4, label=f"simulated: {name} processor")
draw(load, PROCESSORS, "k^--", label="published: processors over their rated power")
draw(load, [(i / 10, watts / SERVER[-1]) for i, watts in enumerate(SERVER)], "ks:", markersize=3, label="published: a whole server (SPECpower)")
load.set(xlim=(0, 1), ylim=(0, 1.1), xlabel="utilisation", ylabel="share of the power at full load")
load.set_title("A processor under load, without the platform")
load.legend(fontsize=8, loc="lower right")
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=110)
