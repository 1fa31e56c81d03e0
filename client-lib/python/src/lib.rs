//! `gpuvol._native`: what the Python package `gpuvol` cannot do in Python.
//!
//! The stable ABI of Python 3.10 has no buffer protocol, so memory crosses this border as an address: the Python side
//! keeps the owner of what it puts, and an [`open::Object`] is the owner of what it gets. Every call that can wait
//! gives the interpreter's lock back first.

mod device;
mod error;
mod foreign;
mod open;
mod put;
mod volume;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<open::Object>()?;
    module.add_function(wrap_pyfunction!(open::open, module)?)?;
    module.add_function(wrap_pyfunction!(put::put_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(put::put_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(put::put_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(put::tensor_types, module)?)?;
    module.add_function(wrap_pyfunction!(volume::stat, module)?)?;
    module.add_function(wrap_pyfunction!(volume::entries, module)?)?;
    module.add_function(wrap_pyfunction!(volume::unlink, module)?)?;
    module.add_function(wrap_pyfunction!(volume::usage, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_codes, module)?)?;
    Ok(())
}
