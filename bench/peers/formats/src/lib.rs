//! HCL and KDL as their libraries read and write them.

use std::hint::black_box;

/// HCL's values alone, as a program reads a configuration. Returns false if it is not HCL.
pub fn read_hcl(text: &str) -> bool {
    black_box(hcl::parse(text)).is_ok()
}

/// HCL as a tree that has comments and positions. Returns false if it is not HCL.
pub fn edit_hcl(text: &str) -> bool {
    black_box(hcl_edit::parser::parse_body(text)).is_ok()
}

/// The closest thing to a formatter in HCL's library: it reads values and writes them, and loses comments.
pub fn format_hcl(text: &str) -> Option<String> {
    hcl::format::to_string(&hcl::parse(text).ok()?).ok()
}

/// KDL as a document. Returns false if it is not KDL.
pub fn read_kdl(text: &str) -> bool {
    black_box(kdl::KdlDocument::parse_v2(text)).is_ok()
}

/// KDL, formatted. Returns `None` if it is not KDL.
pub fn format_kdl(text: &str) -> Option<String> {
    let mut document = kdl::KdlDocument::parse_v2(text).ok()?;
    document.autoformat();
    Some(document.to_string())
}
