//! The HTTP sender as the run loop sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use doorstep_core::destination::Destination;
use doorstep_core::sender::{Asked, Parcel, SendFault, Sender as SenderSeam, Sent, Unsendable};

use super::{Request, SendFault as OwnFault, Sender};

impl SenderSeam for Sender {
    fn send(&self, parcel: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        Box::pin(async move {
            let Parcel { destination, event, delivery } = &parcel;
            let request = Request { destination, event, delivery, replay_id: None };
            let sent = Sender::send(self, request).await.map_err(|fault| SendFault(Box::new(fault)))?;
            if let Some(detail) = &sent.detail {
                let (event_id, delivery_id, destination_id) = (&event.id, delivery.id, destination.id);
                let attempt = sent.attempt.number;
                tracing::debug!(%event_id, %delivery_id, %destination_id, attempt, detail, "no answer");
            }
            Ok(Sent { attempt: sent.attempt, outcome: sent.outcome })
        })
    }

    fn origin(&self) -> &str {
        &self.origin
    }

    fn ask(
        &self,
        destination: Arc<Destination>,
    ) -> Pin<Box<dyn Future<Output = Result<Asked, SendFault>> + Send + '_>> {
        Box::pin(async move { Sender::ask(self, &destination).await.map_err(|fault| SendFault(Box::new(fault))) })
    }

    fn check(&self, destination: &Destination) -> Result<(), Unsendable> {
        let unsendable = |field, fault: &dyn std::error::Error| Unsendable { field, detail: fault.to_string() };
        Sender::check(self, destination).map_err(|fault| match &fault {
            OwnFault::Tls(_, wrong) => unsendable("tls", wrong),
            OwnFault::Secret(_, wrong) => unsendable("secret", wrong),
            OwnFault::Signer(_, wrong) => unsendable("signing", wrong),
            OwnFault::Headers(_, wrong) => unsendable("headers", wrong),
            OwnFault::Output(_, wrong) => unsendable("payload_mode", wrong),
            OwnFault::EventHeaders(..)
            | OwnFault::ContentType(_)
            | OwnFault::EventId(..)
            | OwnFault::ReplayId(_)
            | OwnFault::Asleep => {
                // Of an event or its request, which there is none of here.
                unsendable("", &fault)
            }
        })
    }
}
