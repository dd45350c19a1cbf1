//! The same for several things, one after the other.

use super::Form;
use crate::failure::{Exit, Failure};
use crate::output;

/// Goes on behind a failure. Some done and some failed is a result of its own.
pub(super) async fn each(
    ids: &[String],
    form: Form,
    does: impl AsyncFn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for id in ids {
        if let Err(failure) = does(id).await {
            if ids.len() > 1 {
                output::note(&told(id, &failure, form));
            }
            failed.push(failure);
        }
    }
    let n_failed = failed.len();
    match failed.pop() {
        None => Ok(()),
        Some(only) if ids.len() == 1 => Err(only),
        Some(last) if n_failed == ids.len() => {
            Err(Failure::said(last.exit(), format!("all {n_failed} failed, for the reasons above")))
        }
        Some(_) => {
            Err(Failure::said(Exit::Partial, format!("{n_failed} of {} failed, for the reasons above", ids.len())))
        }
    }
}

/// Programs are told which one it was in the problem itself.
fn told(id: &str, failure: &Failure, form: Form) -> String {
    match form {
        Form::People | Form::Quiet => format!("{id}: {failure}"),
        Form::Json => {
            let mut problem = failure.as_problem();
            if let Some(fields) = problem.as_object_mut() {
                fields.insert("id".to_owned(), id.into());
            }
            format!("{problem}\n")
        }
    }
}
