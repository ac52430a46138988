//! Access of the check to plugins and files.

use std::path::Path;

use pl_types::Item;

use crate::workflow::Plugin;

/// Gives the check access to the items of plugins and to files, without a dependency of the language on WebAssembly.
pub trait Catalog {
    /// Returns the items of a plugin.
    ///
    /// # Errors
    /// Returns the reason why the plugin can't be loaded, to be shown after `plugin "x" can't be loaded: `.
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, String>;

    /// Returns the text of a file named by `include`, `use` or `file(…)`. The path is relative to the folder of the
    /// workflow file.
    ///
    /// # Errors
    /// Returns the reason why the file can't be read, to be shown after `x.mas can't be read: `.
    fn text(&self, path: &Path) -> Result<String, String>;
}
