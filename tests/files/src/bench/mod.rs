//! Figures of a directory against those of a reference in the same run: only their ratios mean something on a shared
//! machine. [`stream`] has big files, [`small`] small ones and names, [`table`] what is printed and demanded.

pub mod small;
pub mod stream;
pub mod table;
