//! The link between the session of a job and the worker that has the job.
//!
//! In: news of the session, orders of the worker. Both queues are bounded. Neither end waits for
//! the other: news that do not fit are lost, and the session leaves after its time limit.

use tokio::sync::{mpsc, oneshot};

use crate::proto::livekit::session::JobEvent;

/// Orders that wait for a session: one termination is enough.
const ORDERS_MAX: usize = 4;

/// What the worker tells a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// The server took the job back.
    Terminate,
    /// The worker has sent the outcome of the job, or has no connection to send it.
    Reported,
}

/// News of a session, with the id of its job.
pub struct SessionJobEvent {
    pub job_id: String,
    pub news: JobEvent,
    /// Completed once the worker has sent what follows from the news, or has no connection.
    pub reported: Option<oneshot::Sender<()>>,
}

/// The session's end.
pub struct JobLink {
    job_id: String,
    news: mpsc::Sender<SessionJobEvent>,
    orders: mpsc::Receiver<JobOrder>,
    reported: Option<oneshot::Receiver<()>>,
}

/// Returns a session's end and the sender of its orders. The sender is closed when the session has
/// ended.
pub fn link(job_id: String, news: mpsc::Sender<SessionJobEvent>) -> (JobLink, mpsc::Sender<JobOrder>) {
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    let link = JobLink {
        job_id,
        news,
        orders,
        reported: None,
    };
    (link, sender)
}

impl JobLink {
    /// Passes news to the worker.
    pub(super) fn tell(&mut self, news: JobEvent) {
        let reported = matches!(news, JobEvent::Ended(_)).then(|| {
            let (sender, receiver) = oneshot::channel();
            self.reported = Some(receiver);
            sender
        });
        let news = SessionJobEvent {
            job_id: self.job_id.clone(),
            news,
            reported,
        };
        if self.news.try_send(news).is_err() {
            log::debug!("news of a job are lost: the worker does not take them");
        }
    }

    async fn recv(&mut self) -> JobOrder {
        let JobLink { orders, reported, .. } = self;
        let outcome = async {
            match reported {
                // An error means that the worker is gone, and no report will follow.
                Some(receiver) => drop(receiver.await),
                None => std::future::pending().await,
            }
        };
        let order = async {
            match orders.recv().await {
                Some(order) => order,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            order = order => order,
            () = outcome => {
                self.reported = None;
                JobOrder::Reported
            }
        }
    }
}

/// Waits for the next order; for ever in a session without a job. Cancel safe.
pub(super) async fn recv_from(link: Option<&mut JobLink>) -> JobOrder {
    match link {
        Some(link) => link.recv().await,
        None => std::future::pending().await,
    }
}
