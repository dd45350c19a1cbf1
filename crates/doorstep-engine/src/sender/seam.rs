//! The HTTP sender as the run loop sees it.

use std::future::Future;
use std::pin::Pin;

use doorstep_core::sender::{Parcel, SendFault, Sender as SenderSeam, Sent};

use super::{Request, Sender};

impl SenderSeam for Sender {
    fn send(&self, parcel: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        Box::pin(async move {
            let Parcel { destination, event, delivery } = &parcel;
            let request = Request { destination, event, delivery, replay_id: None };
            let sent = Sender::send(self, request).await.map_err(|fault| SendFault(Box::new(fault)))?;
            if let Some(detail) = &sent.detail {
                tracing::debug!(delivery_id = %delivery.id, destination_id = %destination.id, detail, "no answer");
            }
            Ok(Sent { attempt: sent.attempt, outcome: sent.outcome })
        })
    }
}
