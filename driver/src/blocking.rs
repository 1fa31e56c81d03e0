//! Work that blocks, off the plugin's runtime.

use tonic::Status;

/// Runs system calls and calls to the store on the pool for blocking work. The work goes on to its end when the caller
/// goes away; what it owns, the operation guards above all, lives until then.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T, Status> + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(Status::internal(format!("the work ended without a result: {e}; see the plugin's log"))),
    }
}
