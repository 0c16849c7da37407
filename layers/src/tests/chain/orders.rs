//! Events in any order: each handoff that was committed ends once, and as what happened to it.

use proptest::prelude::*;

use super::*;

/// What happens next, to one of the calls.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The client, or the server for it, polls what it has.
    Poll,
    /// Tasks in the background run.
    Background,
    ContextHead(u16),
    Context(Reply),
    ClientLeaves,
    GenerationBusy(bool),
    GenerationHead {
        status: u16,
        stream: bool,
    },
    GenerationFails,
    Byte(&'static str),
    BodyFails,
    BodyEnds,
    Seconds(u64),
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    Answer(u16, &'static str),
    Fails,
}

fn event() -> impl Strategy<Value = Event> {
    let reply = prop_oneof![
        6 => Just(Reply::Answer(200, DUE)),
        1 => Just(Reply::Answer(200, ENDED)),
        1 => Just(Reply::Answer(200, ABORTED)),
        1 => Just(Reply::Answer(200, "null")),
        1 => Just(Reply::Answer(400, "")),
        1 => Just(Reply::Answer(500, DUE)),
        1 => Just(Reply::Fails),
    ];
    let status = prop_oneof![5 => Just(200), 1 => Just(400), 1 => Just(503)];
    prop_oneof![
        6 => Just(Event::Poll),
        3 => Just(Event::Background),
        2 => prop_oneof![4 => Just(200), 1 => Just(400)].prop_map(Event::ContextHead),
        4 => reply.prop_map(Event::Context),
        1 => Just(Event::ClientLeaves),
        1 => any::<bool>().prop_map(Event::GenerationBusy),
        4 => (status, any::<bool>()).prop_map(|(status, stream)| Event::GenerationHead { status, stream }),
        1 => Just(Event::GenerationFails),
        3 => prop::sample::select(vec!["data: x\n\n", "{", ""]).prop_map(Event::Byte),
        1 => Just(Event::BodyFails),
        1 => Just(Event::BodyEnds),
        1 => (0_u64..20).prop_map(Event::Seconds),
    ]
}

/// One call and the two workers of it.
struct Play {
    chain: Chain,
    client: Client,
    context: (Request<LegBody>, LegReply<Response<Bytes>>),
    /// What the context worker was made to say.
    signalled: bool,
    replied: Option<Reply>,
    generation: Option<LegReply<Response<Pipe>>>,
    status: Option<u16>,
    body: Option<PipeEnd>,
    /// Everything that the generation worker wrote, and that the client was shown.
    written: String,
    shown: String,
}

enum Client {
    Waits(Call),
    Reads(task::Spawn<Body>),
    Gone,
}

async fn play(client: &'static str, settler: Settler) -> Play {
    let mut chain = chain(settler);
    let (call, request, reply) = chain.call(client).await;
    Play {
        chain,
        client: Client::Waits(call),
        context: (request, reply),
        signalled: false,
        replied: None,
        generation: None,
        status: None,
        body: None,
        written: String::new(),
        shown: String::new(),
    }
}

impl Play {
    async fn step(&mut self, event: Event) {
        if self.generation.is_none() {
            self.generation = self.chain.generation.try_next().map(|(_, reply)| reply);
        }
        match event {
            Event::Poll => self.poll(),
            Event::Background => background().await,
            // A leg that is gone, or has returned, signals nothing.
            Event::ContextHead(status) if self.replied.is_none() && !self.context.1.is_cancelled() => {
                head_arrives(&self.context.0, status);
                self.signalled |= status == 200;
            }
            Event::Context(reply) if self.replied.is_none() => {
                match reply {
                    Reply::Answer(status, body) => self.context.1.send_response(context_reply(status, body)),
                    Reply::Fails => self.context.1.send_error("reset"),
                }
                self.replied = Some(reply);
            }
            Event::ClientLeaves => self.client = Client::Gone,
            Event::GenerationBusy(true) => self.chain.generation.block(),
            Event::GenerationBusy(false) => self.chain.generation.unblock(),
            Event::GenerationHead { status, stream } if self.status.is_none() => {
                if let Some(reply) = &mut self.generation {
                    let (response, end) = answer(if stream { EVENTS } else { JSON }, status);
                    reply.send_response(response);
                    (self.status, self.body) = (Some(status), Some(end));
                }
            }
            Event::GenerationFails if self.status.is_none() => {
                if let Some(reply) = &mut self.generation {
                    reply.send_error("reset");
                    self.status = Some(0);
                }
            }
            Event::Byte(data) => {
                if let Some(body) = &self.body {
                    body.send(data);
                    self.written.push_str(data);
                }
            }
            Event::BodyFails => self.body.iter().for_each(PipeEnd::fail),
            Event::BodyEnds => self.body.iter_mut().for_each(PipeEnd::end),
            Event::Seconds(seconds) => advance(Duration::from_secs(seconds)).await,
            Event::ContextHead(_)
            | Event::Context(_)
            | Event::GenerationHead { .. }
            | Event::GenerationFails => {}
        }
    }

    fn poll(&mut self) {
        match &mut self.client {
            Client::Waits(call) => match call.poll() {
                std::task::Poll::Ready(Ok(response)) => {
                    self.client = Client::Reads(task::spawn(response.into_body()));
                }
                std::task::Poll::Ready(Err(_)) => self.client = Client::Gone,
                std::task::Poll::Pending => {}
            },
            Client::Reads(body) => match body.enter(|cx, body| body.poll_frame(cx)) {
                std::task::Poll::Ready(Some(Ok(frame))) => {
                    self.shown.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
                }
                std::task::Poll::Ready(_) => self.client = Client::Gone,
                std::task::Poll::Pending => {}
            },
            Client::Gone => {}
        }
    }

    /// The client leaves, if it has not, and time runs out for what is left.
    async fn finish(&mut self, settles: bool) {
        self.client = Client::Gone;
        if !settles {
            assert_eq!(self.chain.settler.active(), 0);
        }
        background().await;
        advance(BOUND).await;
        background().await;
        self.chain.settler.idle().await;
        assert_eq!(self.chain.settler.active(), 0);
        if self.generation.is_none() {
            self.generation = self.chain.generation.try_next().map(|(_, reply)| reply);
        }
    }

    /// Whether the context worker was left with a cache, by what it did itself.
    fn committed(&self) -> bool {
        let answered = !self.context.1.is_cancelled() && matches!(self.replied, Some(Reply::Answer(200, _)));
        self.signalled || answered
    }

    /// How the handoff may have ended.
    fn allowed(&self) -> &'static [&'static str] {
        let answered = !self.context.1.is_cancelled();
        if !self.committed() {
            return &[];
        }
        match self.replied {
            Some(Reply::Answer(200, ENDED | ABORTED)) if answered => return &["released"],
            Some(Reply::Answer(200, DUE)) if answered => {}
            Some(_) if answered => return &["failed"],
            _ => return &["abandoned"],
        }
        let reached = self.generation.as_ref().is_some_and(|reply| !reply.is_cancelled());
        match (self.status, &self.body) {
            (Some(200), Some(body)) if reached && body.read() > 0 => &["collected"],
            (Some(200), _) if reached => &["failed", "abandoned"],
            (Some(0), _) if reached => &["failed"],
            (Some(_), _) if reached => &["refused"],
            _ => &["abandoned"],
        }
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(config(600))]

    #[test]
    fn each_handoff_ends_once_as_what_happened_to_it(
        client in prop::sample::select(vec![STREAMED, WHOLE]),
        settles in prop::bool::weighted(0.8),
        events in prop::collection::vec(event(), 0..40),
    ) {
        runtime().block_on(async {
            let settler = if settles { Settler::new(BOUND) } else { Settler::off() };
            let mut play = play(client, settler.clone()).await;
            for event in events {
                play.step(event).await;
            }
            play.finish(settles).await;
            let allowed = play.allowed();
            let ends = ends(&settler);
            prop_assert_eq!(ends.len(), usize::from(play.committed()), "{:?}", ends);
            prop_assert!(ends.iter().all(|end| allowed.contains(end)), "{:?} is not among {:?}", ends, allowed);
            prop_assert!(!play.shown.contains(CANARY));
            let terminal = matches!(play.replied, Some(Reply::Answer(_, ENDED)));
            prop_assert!(terminal || play.written.starts_with(&play.shown), "{:?} of {:?}", play.shown, play.written);
            prop_assert!(!terminal || play.generation.is_none());
            Ok(())
        })?;
    }

}

proptest! {
    #![proptest_config(config(100))]

    /// Several calls with one settler that has few places.
    #[test]
    fn handoffs_that_share_a_settler_add_up(
        most in 0_usize..3,
        events in prop::collection::vec((0_usize..4, event()), 0..120),
    ) {
        runtime().block_on(async {
            let settler = Settler::new(BOUND).with_most(most);
            let mut plays = Vec::new();
            for at in 0..4 {
                plays.push(play([STREAMED, WHOLE][at % 2], settler.clone()).await);
            }
            for (at, event) in events {
                plays[at].step(event).await;
                prop_assert!(settler.active() <= most);
            }
            for play in &mut plays {
                play.client = Client::Gone;
            }
            for play in &mut plays {
                play.finish(true).await;
            }
            let ends = ends(&settler);
            let committed = plays.iter().filter(|play| play.committed()).count();
            prop_assert_eq!(ends.len(), committed, "{:?}", ends);
            let surely = |end| plays.iter().filter(|play| play.allowed() == [end]).count();
            for end in ["collected", "released", "refused"] {
                prop_assert_eq!(ends.iter().filter(|it| **it == end).count(), surely(end), "{}", end);
            }
            Ok(())
        })?;
    }
}
