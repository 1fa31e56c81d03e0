//! Columns chosen by name.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use super::error::LayoutError;

/// Indices of the named columns and the schema that they make, in the order asked for.
pub(crate) fn project(schema: &SchemaRef, columns: &[&str]) -> Result<(Vec<usize>, SchemaRef), LayoutError> {
    let mut indices = Vec::with_capacity(columns.len());
    for name in columns {
        let mut matching = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
        match (matching.next(), matching.next()) {
            (Some((index, _)), None) => indices.push(index),
            _ => return Err(no_such_column(schema, name)),
        }
    }
    let projected = schema.project(&indices).map_err(|error| LayoutError::arrow("the projection", error))?;
    Ok((indices, Arc::new(projected)))
}

fn no_such_column(schema: &Schema, name: &str) -> LayoutError {
    /// A wide table's names would drown the message.
    const SHOWN: usize = 20;
    let mut names: Vec<&str> = schema.fields().iter().take(SHOWN).map(|field| field.name().as_str()).collect();
    if schema.fields().len() > SHOWN {
        names.push("...");
    }
    LayoutError::NoSuchColumn { name: name.to_owned(), available: names.join(", ") }
}
