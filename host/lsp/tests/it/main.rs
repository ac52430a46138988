//! The server as an editor meets it: a process that is spoken to over its standard input and output.

mod checks;
mod editor;
mod knows;
mod robust;
mod talk;
