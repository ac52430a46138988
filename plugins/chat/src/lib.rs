//! The built-in agent: a system prompt, a template, an extraction rule.
