//! Files of the page, which are part of the program.

/// File of the page.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset { name: $name, kind: SCRIPT, text: include_str!(concat!("../assets/", $name)) }
    };
}

/// The page itself.
pub(crate) const PAGE: &str = include_str!("../assets/index.html");

/// Files that the page asks for.
pub(crate) const ASSETS: [Asset; 17] = [
    Asset { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("../assets/style.css") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("../assets/icon.svg") },
    script!("main.js"),
    script!("navigation.js"),
    script!("api.js"),
    script!("dom.js"),
    script!("chart.js"),
    script!("series.js"),
    script!("runs.js"),
    script!("episodes.js"),
    script!("episode.js"),
    script!("conversation.js"),
    script!("tree.js"),
    script!("tokens.js"),
    script!("workflow.js"),
    script!("play.js"),
    script!("timeline.js"),
];
