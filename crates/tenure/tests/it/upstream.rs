//! A provider that a test plays: it counts who asks, and answers as it is told.

use crate::house::PATIENCE;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What the provider does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// Streams an answer.
    Answers,
    /// Answers at once to requests before this number; to later ones when two keys have asked by then.
    AnswersTogether(usize),
    /// Refuses with a status and the type of an error.
    Refuses(u16, &'static str),
    /// Sends these bytes and hangs up.
    Sends(Vec<u8>),
    /// Sends these bytes again and again, until the other side hangs up.
    SendsWithoutEnd(&'static str, Vec<u8>),
    /// Takes the request and says nothing until the other side hangs up.
    Holds,
}

#[derive(Debug)]
struct State {
    says: Says,
    /// The key of each request, in the order in which they came.
    asked: Vec<String>,
}

/// Speaks Chat Completions on a port of its own until the test ends.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    url: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Upstream {
    pub(crate) fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new((Mutex::new(State { says, asked: Vec::new() }), Condvar::new()));
        let upstream = Self { url, state };
        let own = upstream.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                std::thread::spawn(move || own.converse(stream));
            }
        });
        upstream
    }

    /// Settings of a provider `p` that is this one, without a key.
    pub(crate) fn config(&self) -> String {
        format!("\n[providers.p]\ndialect = \"openai\"\nbase_url = \"{}/v1\"\n", self.url)
    }

    /// What is done from now on; requests that are held stay so.
    pub(crate) fn says(&self, says: Says) {
        self.state.0.lock().unwrap().says = says;
    }

    /// The keys of all requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.0.lock().unwrap().asked.clone()
    }

    /// Waits until so many requests came in all; returns the keys of all of them.
    #[track_caller]
    pub(crate) fn until_asked(&self, wanted: usize) -> Vec<String> {
        let (state, changed) = &*self.state;
        let state = state.lock().unwrap();
        let (state, waited) = changed.wait_timeout_while(state, PATIENCE, |state| state.asked.len() < wanted).unwrap();
        assert!(!waited.timed_out(), "{} requests of {wanted} came", state.asked.len());
        state.asked.clone()
    }

    fn converse(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut key, mut length, mut line) = (String::new(), None, String::new());
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                let lower = line.to_lowercase();
                if let Some(value) = lower.strip_prefix("authorization: bearer ") {
                    key = value.trim().to_owned();
                }
                length = length.or_else(|| lower.strip_prefix("content-length: ")?.trim().parse().ok());
                line.clear();
            }
            let Some(length) = length else { return };
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            let says = {
                let (state, changed) = &*self.state;
                let mut state = state.lock().unwrap();
                state.asked.push(key);
                let (number, says) = (state.asked.len(), state.says.clone());
                changed.notify_all();
                if let Says::AnswersTogether(from) = says {
                    let is_alone = |state: &mut State| {
                        number > from && state.asked.iter().skip(from).collect::<BTreeSet<_>>().len() < 2
                    };
                    let waited = changed.wait_timeout_while(state, PATIENCE, is_alone).unwrap().1;
                    if waited.timed_out() {
                        return;
                    }
                }
                says
            };
            if !answer(reader.get_mut(), says) {
                return;
            }
        }
    }
}

/// Does what is to be done; says whether the connection can be used again.
fn answer(stream: &mut TcpStream, says: Says) -> bool {
    match says {
        Says::Answers | Says::AnswersTogether(_) => {
            let body = "data: {\"choices\":[{\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1000}}\n\ndata: [DONE]\n\n";
            stream.write_all(whole(200, "text/event-stream", body).as_bytes()).is_ok()
        }
        Says::Refuses(status, kind) => {
            let body = format!("{{\"error\":{{\"type\":\"{kind}\",\"message\":\"refused\"}}}}");
            stream.write_all(whole(status, "application/json", &body).as_bytes()).is_ok()
        }
        Says::Sends(bytes) => {
            // The other side may have enough before the end.
            let _ = stream.write_all(&bytes);
            false
        }
        Says::SendsWithoutEnd(head, piece) => {
            let mut is_open = stream.write_all(head.as_bytes()).is_ok();
            while is_open {
                is_open = stream.write_all(&piece).is_ok();
            }
            false
        }
        Says::Holds => {
            let _ = stream.read(&mut [0]);
            false
        }
    }
}

fn whole(status: u16, content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
