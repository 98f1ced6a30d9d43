//! The words that titles and texts of the built-in services are made of.

/// The first word of a title.
pub(crate) const QUALITIES: [&str; 20] = [
    "Amber", "Brisk", "Calm", "Distant", "Early", "Frozen", "Gentle", "Hidden", "Idle", "Late", "Lean",
    "Measured", "Narrow", "Northern", "Patient", "Quiet", "Silver", "Steady", "Thrifty", "Western",
];

/// The second word of a title.
pub(crate) const PLACES: [&str; 20] = [
    "Anchor",
    "Basin",
    "Bridge",
    "Canal",
    "Cliff",
    "Dam",
    "Delta",
    "Dune",
    "Estuary",
    "Ferry",
    "Fjord",
    "Harbour",
    "Island",
    "Lagoon",
    "Lighthouse",
    "Mill",
    "Quay",
    "Reef",
    "Tide",
    "Weir",
];

/// The words of a text.
pub(crate) const WORDS: [&str; 72] = [
    "about", "above", "across", "after", "along", "barge", "beacon", "before", "below", "between", "boat",
    "bottom", "bright", "buoy", "cargo", "carries", "chart", "coast", "course", "current", "deep", "depth",
    "draught", "drift", "eastward", "ebb", "engine", "every", "falls", "flood", "flows", "from", "gate",
    "gauge", "half", "high", "holds", "hour", "keeps", "keel", "light", "lock", "low", "mast", "measure",
    "mouth", "near", "night", "over", "passes", "pilot", "port", "reaches", "rises", "river", "rope", "sand",
    "shore", "signal", "slack", "slow", "spring", "stream", "swell", "the", "through", "toward", "turns",
    "under", "water", "wharf", "wind",
];

/// Who edits pages.
pub(crate) const EDITORS: [&str; 8] = ["Ada", "Bo", "Chidi", "Dora", "Emeka", "Freya", "Goro", "Hana"];
