//! HCL and KDL as their libraries read and write them.

use std::hint::black_box;

/// HCL's values alone, as a program reads a configuration. False: it is no HCL.
pub fn read_hcl(text: &str) -> bool {
    black_box(hcl::parse(text)).is_ok()
}

/// HCL as a tree that knows comments and places. False: it is no HCL.
pub fn edit_hcl(text: &str) -> bool {
    black_box(hcl_edit::parser::parse_body(text)).is_ok()
}

/// The closest thing to a formatter in HCL's library: it reads values and writes them, and loses comments.
pub fn format_hcl(text: &str) -> Option<String> {
    hcl::format::to_string(&hcl::parse(text).ok()?).ok()
}

/// False: it is no KDL.
pub fn read_kdl(text: &str) -> bool {
    black_box(kdl::KdlDocument::parse_v2(text)).is_ok()
}

/// KDL, formatted. None: it is none.
pub fn format_kdl(text: &str) -> Option<String> {
    let mut document = kdl::KdlDocument::parse_v2(text).ok()?;
    document.autoformat();
    Some(document.to_string())
}
