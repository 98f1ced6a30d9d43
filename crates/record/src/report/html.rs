//! The page around a report, and the only place where texts become HTML.

use crate::text::{number_or_none, trimmed};
use std::fmt::Write;

/// A text as HTML, safe in an element and in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A value as JSON that may stand inside a script element: nothing in it can end the element.
pub(crate) fn json_in_script(value: &serde_json::Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A whole page. The title is text; head line and body are HTML already.
///
/// The policy in its head forbids the browser to load anything from anywhere.
pub(crate) fn page(title: &str, body: &str, hover: Option<&serde_json::Value>) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n",
        escape(title),
        include_str!("style.css"),
    );
    if let Some(data) = hover {
        let _ = write!(
            page,
            "<div id=\"tip\" hidden></div>\n<script type=\"application/json\" id=\"data\">{}</script>\n\
             <script>\n{}</script>\n",
            json_in_script(data),
            include_str!("script.js"),
        );
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A page's head: what kind of page it is, its title, what it comes to, and where its figures are from. All are texts.
pub(crate) fn header(kind: &str, title: &str, lead: &str, facts: &str) -> String {
    format!(
        "<header><p class=\"kind\">{}</p><h1>{}</h1><p class=\"lead\">{}</p><p class=\"facts\">{}</p></header>\n",
        escape(kind),
        escape(title),
        escape(lead),
        escape(facts)
    )
}

/// A bar of a `figure.bars`: its name, its colour's number, how much of the track it fills in percent, the value at its end,
/// and the place of a mark in percent.
pub(crate) fn bar(name: &str, colour: usize, percent: f64, value: &str, mark_percent: Option<f64>) -> String {
    let mark = mark_percent.map_or_else(String::new, |at| {
        format!("<span class=\"at-mark\" style=\"left:{at:.1}%\"></span>")
    });
    format!(
        "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">{mark}<span class=\"fill c{colour}\" \
         style=\"width:{percent:.1}%\"></span></span><span class=\"number\">{}</span></div>\n",
        escape(name),
        escape(value)
    )
}

/// A headline number: what it is, its value with the unit, and a line below; `state` is a class that colours it.
pub(crate) fn card(label: &str, value: &str, below: &str, state: &str) -> String {
    format!(
        "<div class=\"card {state}\"><div class=\"label\">{}</div><div class=\"value\">{}</div><div class=\"below\">{}</div></div>\n",
        escape(label),
        escape(value),
        escape(below)
    )
}

/// A list of remarks that a reader must not miss; nothing where there are none.
pub(crate) fn banner(heading: &str, remarks: &[String]) -> String {
    if remarks.is_empty() {
        return String::new();
    }
    let mut html = format!("<aside class=\"banner\"><strong>{}</strong><ul>", escape(heading));
    for remark in remarks {
        let _ = write!(html, "<li>{}</li>", escape(remark));
    }
    html.push_str("</ul></aside>\n");
    html
}

/// Says how lines are to be read where a point stands for several periods; nothing where each has its own.
pub(crate) fn thinning(periods_per_point: u64) -> String {
    if periods_per_point <= 1 {
        return String::new();
    }
    format!(
        "<p class=\"facts\">Each point stands for {periods_per_point} periods: the line is their mean, the lighter band \
         reaches from the smallest to the largest value.</p>\n"
    )
}

/// A number for people: as many digits as say something, thousands apart.
pub(crate) fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        return thousands(value);
    }
    let decimals = match size {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 3,
    };
    trimmed(number_or_none(Some(value), decimals).parse().unwrap_or(value))
}

/// A number without decimals, its thousands apart by a narrow space.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" {
        format!("\u{2212}{text}")
    } else {
        text
    }
}

/// A number with its unit, or `-` where it does not exist.
pub(crate) fn with_unit(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(
        || crate::text::NONE.to_owned(),
        |value| format!("{} {unit}", figure(value)).trim_end().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_is_shown_and_not_obeyed() {
        assert_eq!(
            escape("<b a=\"1\" b='2'>&\u{7}"),
            "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;\u{fffd}"
        );
        let json = json_in_script(&serde_json::json!("</script><!--\u{2028}"));
        assert!(!json.contains('<') && !json.contains('\u{2028}'), "{json}");
        assert_eq!(
            serde_json::from_str::<String>(&json).unwrap(),
            "</script><!--\u{2028}"
        );
    }

    #[test]
    fn figures_have_the_digits_that_say_something() {
        assert_eq!(figure(1_234_567.4), "1\u{202f}234\u{202f}567");
        assert_eq!(figure(123.4), "123");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(1.5), "1.5");
        assert_eq!(figure(0.0), "0");
        assert_eq!(figure(0.0216), "0.022");
        assert_eq!(thousands(-1000.0), "\u{2212}1\u{202f}000");
        assert_eq!(thousands(-0.2), "0");
    }
}
