//! Interim (1xx) answers on their way to the client (RFC 9110 section 15.2: a proxy forwards them).
//!
//! Those of an HTTP/1.1 client go out before its final answer. hyper's HTTP/2 server knows none, and a client of HTTP/1.0 neither:
//! they are not sent any.

use std::rc::Rc;

use crate::call::Call;
use crate::conn::ClientConn;
use crate::response_head::ResponseHead;
use crate::watch::Phase;

/// The request that interim answers are for. Another one on its connection is not sent them.
#[derive(Clone)]
pub(crate) struct InterimTo {
    client: Rc<ClientConn>,
    request: u64,
}

impl InterimTo {
    /// For the request that was just read; `None` where its client knows none.
    pub(crate) fn new(client: &Rc<ClientConn>) -> Option<Self> {
        let request = client.http1.as_ref()?.in_hand()?;
        Some(Self {
            client: client.clone(),
            request,
        })
    }

    /// Sends the client this interim head; one for which there is no room, because the client does not read, is dropped.
    fn send(&self, mut head: ResponseHead, via: bool) {
        if via {
            head.fields.add_via(false);
        }
        let mut text = format!("HTTP/1.1 {} ", head.status.as_str()).into_bytes();
        text.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
        text.extend_from_slice(b"\r\n");
        // RFC 9110 section 8.6: none of them has content.
        head.fields.write(&mut text, false);
        text.extend_from_slice(b"\r\n");
        self.say(&text);
    }

    fn say(&self, interim: &[u8]) {
        if let Some(http1) = &self.client.http1
            && http1.in_hand() == Some(self.request)
        {
            http1.say(interim, self.client.core().config.limits.max_header_bytes);
            // The exchange may be another task's.
            self.client.watch.wake();
        }
    }
}

impl Call {
    /// A backend sent this interim head. A 100 is the word that the client waits for, where it waits for one.
    pub(crate) fn interim(&mut self, head: ResponseHead, via: bool) {
        let is_continue = head.status == http::StatusCode::CONTINUE;
        match &self.body {
            Some(body) if is_continue && body.held => self.ask_for_body(),
            // The client was asked already: by the gateway, or it did not wait.
            Some(body) if is_continue && body.expected => {}
            _ => {
                if let Some(to) = &self.interim {
                    to.send(head, via);
                }
            }
        }
    }

    /// The client is asked for the body that it holds back.
    pub(crate) fn ask_for_body(&mut self) {
        if let Some(body) = self.body.as_mut().filter(|body| body.held) {
            body.held = false;
            self.watch.enter(Phase::Upload);
            if let Some(to) = &self.interim {
                to.say(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
    }
}
