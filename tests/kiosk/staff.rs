//! The actors: an intake that spreads orders, and clerks that store them.

use std::sync::Arc;

use adieu::actors::kameo::Ref;
use kameo::Actor;
use kameo::message::{Context, Message};

use crate::pool::Pool;

pub(crate) struct Order(pub(crate) String);

#[derive(Actor)]
pub(crate) struct Intake {
    clerks: Vec<Ref<Clerk>>,
    next: usize,
}

#[derive(Actor)]
pub(crate) struct Clerk {
    pool: Arc<Pool>,
}

impl Intake {
    pub(crate) fn new(clerks: Vec<Ref<Clerk>>) -> Self {
        Self { clerks, next: 0 }
    }
}

impl Clerk {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }
}

impl Message<Order> for Intake {
    type Reply = ();

    #[expect(clippy::print_stderr, reason = "an error that the tests detect")]
    async fn handle(&mut self, order: Order, _: &mut Context<Self, ()>) {
        self.next = (self.next + 1) % self.clerks.len();
        if let Err(error) = self.clerks[self.next].tell(order).await {
            eprintln!("order not passed on: {error}");
        }
    }
}

impl Message<Order> for Clerk {
    type Reply = ();

    #[expect(clippy::print_stderr, reason = "an error that the tests detect")]
    async fn handle(&mut self, Order(id): Order, _: &mut Context<Self, ()>) {
        if let Err(error) = self.pool.store(&id).await {
            eprintln!("order not stored: {id}: {error}");
        }
    }
}
