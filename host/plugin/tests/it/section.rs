//! Items in a custom section: read without compilation and compared with the plugin's description.

use pl_plugin::{Plugin, PluginSpec, known_items, section};

use crate::common::{built, engine, load};

#[tokio::test]
async fn a_section_is_equal_to_the_description() {
    let bytes = built("letters.wasm");
    let plugin = load(&bytes, PluginSpec::new("letters")).await;
    let described = section::with_items(&bytes, plugin.items()).unwrap();
    assert_eq!(section::items(&described).unwrap(), plugin.items());
    // Written again it is the same: one section, not two.
    assert_eq!(section::with_items(&described, plugin.items()).unwrap(), described);
    let again = load(&described, PluginSpec::new("letters")).await;
    assert_eq!(again.items(), plugin.items());
    assert_eq!(known_items(&engine(), &described).unwrap(), plugin.items());
}

#[tokio::test]
async fn a_wrong_section_is_refused() {
    let bytes = built("letters.wasm");
    let plugin = load(&bytes, PluginSpec::new("letters")).await;
    let other = load(&built("math.wasm"), PluginSpec::new("maths")).await;
    let mut wrong = section::with_items(&bytes, plugin.items()).unwrap();
    wrong = section::with_items(&wrong, other.items()).unwrap();
    let error = Plugin::load(&engine(), PluginSpec::new("letters"), &wrong).await.err().unwrap();
    assert!(error.to_string().contains("differs from the description"), "{error}");
}

#[tokio::test]
async fn invalid_bytes_have_no_items() {
    let bytes = built("letters.wasm");
    let plugin = load(&bytes, PluginSpec::new("letters")).await;
    let described = section::with_items(&bytes, plugin.items()).unwrap();
    for end in (0..described.len()).step_by(997).chain(described.len() - 40..described.len()) {
        assert_eq!(section::items(&described[..end]), None, "{end}");
    }
    assert_eq!(section::items(b"\0asm\x01\0\0\0"), None);
    assert_eq!(section::items(b"\0asm\x0d\0\x01\0\0\xff\xff\xff\xff\x0f"), None);
}
