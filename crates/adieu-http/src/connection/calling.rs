//! Calls an application with a request: at once if it is ready, which most always are.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use adieu_core::Pass;
use http::Request;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use crate::layer::within;

pin_project! {
    /// The answer of an application that is being called.
    pub(crate) struct Calling<S: Service<Request<Incoming>>> {
        #[pin]
        state: State<S>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S: Service<Request<Incoming>>> {
        Called { #[pin] answer: S::Future },
        // Boxed, because it is rare and large: requests are copied about as it is.
        NotReady { calling: Pin<Box<Oneshot<S, Request<Incoming>>>> },
    }
}

impl<S: Service<Request<Incoming>> + Clone> Calling<S> {
    pub(super) fn new(app: &S, request: Request<Incoming>, pass: Option<&Pass>) -> Self {
        let mut app = app.clone();
        // Nobody has to be woken: if it is not ready it is asked again, properly.
        let ready = app.poll_ready(&mut Context::from_waker(Waker::noop()));
        let state = match ready {
            Poll::Ready(Ok(())) => State::Called { answer: within(pass, || app.call(request)) },
            Poll::Ready(Err(_)) | Poll::Pending => {
                State::NotReady { calling: Box::pin(app.oneshot(request)) }
            }
        };
        Self { state }
    }
}

impl<S: Service<Request<Incoming>>> Future for Calling<S> {
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Called { answer } => answer.poll(cx),
            StateProj::NotReady { calling } => calling.as_mut().poll(cx),
        }
    }
}
