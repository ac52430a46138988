//! Both grammars read every workflow there is, and see the same in it.

mod classes;
mod corpus;
mod files;
mod reading;
mod textmate;
mod tree;
