//! The parts that all pictures share: colours for light and dark, and text that fits into them.

use crate::fit::{harmless, shortened, width};

/// The colours of one scheme. Colour is never the only mark: every outcome has a sign, the critical
/// path a star, the deadline a word.
struct Palette {
    back: &'static str,
    ink: &'static str,
    dim: &'static str,
    line: &'static str,
    grid: &'static str,
    band: &'static str,
    critical: &'static str,
    critical_box: &'static str,
    finished: &'static str,
    stopped: &'static str,
    failed: &'static str,
    late: &'static str,
    left: &'static str,
}

const LIGHT: Palette = Palette {
    back: "#ffffff",
    ink: "#1c2126",
    dim: "#56606b",
    line: "#8a94a0",
    grid: "#dfe4e9",
    band: "#f3f5f7",
    critical: "#1a5fd0",
    critical_box: "#e8f0fd",
    finished: "#2f8f4e",
    stopped: "#7d55c7",
    failed: "#c21f30",
    late: "#c06a00",
    left: "#a3157a",
};

const DARK: Palette = Palette {
    back: "#15181c",
    ink: "#e8ecf0",
    dim: "#a8b2bd",
    line: "#6b7682",
    grid: "#2c333b",
    band: "#1d2228",
    critical: "#6ea8ff",
    critical_box: "#16294a",
    finished: "#4fb873",
    stopped: "#b394f0",
    failed: "#ff6b74",
    late: "#f0a040",
    left: "#ee6cc0",
};

/// The maximum width of one column of text, in the normal font and in the small one.
const COLUMN: f64 = 7.4;
const SMALL_COLUMN: f64 = 6.4;

/// Returns the style sheet. It has no variables, because not every SVG viewer supports them.
pub(crate) fn style() -> String {
    let font = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
    format!(
        "<style>\n.adieu {{ font: 13px {font} }}\n.adieu .small {{ font-size: 11px }}\n\
         .adieu .strong {{ font-weight: 600 }}\n{}\
         @media (prefers-color-scheme: dark) {{\n{}}}\n</style>\n",
        rules(&LIGHT),
        rules(&DARK),
    )
}

fn rules(palette: &Palette) -> String {
    let Palette {
        back,
        ink,
        dim,
        line,
        grid,
        band,
        critical,
        critical_box,
        finished,
        stopped,
        failed,
        late,
        left,
    } = palette;
    format!(
        ".adieu .back {{ fill: {back} }} .adieu .band {{ fill: {band} }}\n\
         .adieu text {{ fill: {ink} }} .adieu text.dim, .adieu tspan.dim {{ fill: {dim} }}\n\
         .adieu .grid {{ stroke: {grid} }} .adieu .deadline {{ stroke: {failed}; stroke-width: 1.5; stroke-dasharray: 5 3 }}\n\
         .adieu text.deadline {{ fill: {failed}; stroke: none }}\n\
         .adieu .finished {{ fill: {finished} }} .adieu .skipped {{ fill: {line} }} .adieu .stopped {{ fill: {stopped} }}\n\
         .adieu .failed {{ fill: {failed} }} .adieu .late {{ fill: {late} }} .adieu .left {{ fill: {left} }}\n\
         .adieu .box {{ fill: {band}; stroke: {line} }} .adieu .way {{ fill: none; stroke: {line} }}\n\
         .adieu .box.critical {{ fill: {critical_box}; stroke: {critical}; stroke-width: 2 }}\n\
         .adieu .way.critical {{ stroke: {critical}; stroke-width: 2 }}\n\
         .adieu .box.disabled {{ fill: none; stroke-dasharray: 5 4 }}\n\
         .adieu .tip {{ fill: {line} }} .adieu .tip.critical, .adieu text.critical {{ fill: {critical} }}\n"
    )
}

/// Returns a picture of this size, with the style sheet.
pub(crate) fn framed(title: &str, width: f64, height: f64, content: &str) -> String {
    let (title, style) = (escape(title), style());
    format!(
        r#"<svg class="adieu" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
{style}<rect class="back" width="{width}" height="{height}"/>
{content}</svg>
"#
    )
}

/// Escapes text for elements and attributes. XML cannot represent control characters, so they are
/// replaced.
pub(crate) fn escape(text: &str) -> String {
    let text = harmless(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Cuts the text to this many pixels, and escapes it.
pub(crate) fn label(text: &str, pixels: f64) -> String {
    escape(&shortened(text, (pixels / COLUMN) as usize))
}

/// Cuts text in the small font to this many pixels, and escapes it.
pub(crate) fn small_label(text: &str, pixels: f64) -> String {
    escape(&shortened(text, (pixels / SMALL_COLUMN) as usize))
}

/// Returns how many pixels a text in the small font takes at most.
pub(crate) fn small_width(text: &str) -> f64 {
    width(text) as f64 * SMALL_COLUMN
}
