//! The future of the response to an admitted request.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::{Admitted, AdmittedBody, Origin, UntilCut, poll_application};

pin_project! {
    /// The response to an admitted request, or a response that is already known.
    pub(crate) struct AdmittedFuture<F, O> {
        #[pin]
        state: State<F, O>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, O> {
        /// A refusal, or the response of a probe.
        Known { response: Option<Box<Response<Bytes>>> },
        Admitted {
            #[pin]
            inner: F,
            // Created when the handler first waits: many handlers never do.
            until_cut: Option<UntilCut>,
            // Last, because the pass must outlive the work. `None` when the body has taken it over.
            admitted: Option<Admitted<O>>,
        },
    }
}

// === impl AdmittedFuture ===

impl<F, O: Origin> AdmittedFuture<F, O> {
    pub(crate) fn known(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Known { response: Some(response) } }
    }

    pub(crate) fn new(inner: F, admitted: Option<Admitted<O>>) -> Self {
        Self { state: State::Admitted { inner, until_cut: None, admitted } }
    }
}

impl<F, B, E, O> Future for AdmittedFuture<F, O>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
    O: Origin,
{
    type Output = Result<Response<AdmittedBody<B, O>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (inner, until_cut, slot) = match self.project().state.project() {
            StateProj::Known { response } => {
                // A future that is polled after its end returns an empty response, and no panic.
                let response = response.take().unwrap_or_default();
                return Poll::Ready(Ok((*response).map(AdmittedBody::full)));
            }
            StateProj::Admitted { inner, until_cut, admitted } => (inner, until_cut, admitted),
        };
        match poll_application(slot, || inner.poll(cx)) {
            Poll::Ready(Ok(response)) => {
                let response = match slot.take() {
                    Some(admitted) => admitted.answer(response),
                    None => response.map(AdmittedBody::unaccounted),
                };
                return Poll::Ready(Ok(response));
            }
            Poll::Ready(Err(error)) => {
                if let Some(admitted) = slot {
                    admitted.report_failure("failed without an answer");
                    admitted.origin.mark_done();
                }
                return Poll::Ready(Err(error));
            }
            Poll::Pending => {}
        }
        let Some(admitted) = slot else { return Poll::Pending };
        let until_cut = until_cut.get_or_insert_with(|| {
            admitted.label();
            admitted.origin.admission().until_cut(admitted.origin.is_nested())
        });
        let cut = until_cut.as_mut().poll(cx);
        cut.map(|window| Ok(admitted.cut_without_answer(window).map(AdmittedBody::full)))
    }
}
