//! The simulated model server over real sockets: bodies, metrics, switches, restarts, trailers.
//!
//! Every wait is for a level (a state, a byte, a closed connection), never for a time.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plumbline::sim::{
    Change, EngineSettings, Fault, FaultKind, Handle, MetricsMode, Server, Settings,
};
use serde_json::{Value, json};

fn start(engine: EngineSettings) -> Handle {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings { model: "m".to_owned(), engine, ..Settings::default() };
    Server::start("sim-test", listener, settings).unwrap()
}

/// An engine whose first step, with a long prompt, outlasts every test.
fn endless() -> EngineSettings {
    EngineSettings { max_num_seqs: 1, prefill_tokens_per_second: 0.01, ..EngineSettings::default() }
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn request(server: &Handle, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let body = body.into();
    let method = if body.is_empty() { "GET" } else { "POST" };
    let uri = format!("http://{}{path}", server.addr());
    Request::builder().method(method).uri(uri).body(Full::new(body)).unwrap()
}

async fn send(server: &Handle, path: &str, body: impl Into<Bytes>) -> (Response<()>, Bytes) {
    let response = client().request(request(server, path, body)).await.unwrap();
    let (head, body) = response.into_parts();
    (Response::from_parts(head, ()), body.collect().await.unwrap().to_bytes())
}

async fn json_of(server: &Handle, path: &str, body: &str) -> Value {
    let (_, body) = send(server, path, body.to_owned()).await;
    serde_json::from_slice(&body).unwrap()
}

/// The value of the first series of `page` whose line begins with `series`.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Ends a wait that a broken server would make endless.
async fn within<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.expect("waits for ever")
}

/// Waits for a level.
async fn until(level: impl Fn() -> bool) {
    let reached = async {
        while !level() {
            tokio::task::yield_now().await;
        }
    };
    within(reached).await;
}

/// Mutants: usage without the prompt, a missing header, or `stop` for a limited output.
#[tokio::test]
async fn a_completion_answers_whole_with_usage() {
    let server = start(EngineSettings::default());
    let body = r#"{"model":"x","prompt":"12345678","max_tokens":3}"#;
    let (head, answer) = send(&server, "/v1/completions", body).await;
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["x-sim-endpoint"], "sim-test");
    assert_eq!(head.headers()["x-sim-address"], server.addr().to_string());
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "x");
    assert_eq!(answer["choices"][0]["text"], "the line hangs");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let usage = json!({"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3});
    assert_eq!(answer["usage"], usage);

    let chat = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
    let answer = json_of(&server, "/v1/chat/completions", chat).await;
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], 16);
}

/// Mutants: a lost or doubled last token, usage that was not asked for, no end mark.
#[tokio::test]
async fn a_stream_sends_one_event_a_token_then_usage_then_done() {
    let server = start(EngineSettings::default());
    for (path, input, asked) in [
        ("/v1/completions", r#""prompt":"hello""#, true),
        ("/v1/chat/completions", r#""messages":[{"role":"user","content":"hello"}]"#, false),
    ] {
        let options = if asked { r#","stream_options":{"include_usage":true}"# } else { "" };
        let body = format!(r#"{{{input},"max_tokens":4,"stream":true{options}}}"#);
        let (head, text) = send(&server, path, body).await;
        assert!(head.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        let text = String::from_utf8(text.to_vec()).unwrap();
        let mut events: Vec<_> =
            text.split_terminator("\n\n").map(|e| e.strip_prefix("data: ").unwrap()).collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        let mut events: Vec<Value> =
            events.into_iter().map(|e| serde_json::from_str(e).unwrap()).collect();
        if asked {
            let last = events.pop().unwrap();
            assert_eq!(last["choices"], json!([]));
            assert_eq!(last["usage"]["completion_tokens"], 4);
        }
        let texts = events.iter().map(|e| {
            let choice = &e["choices"][0];
            choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap()
        });
        assert_eq!(texts.collect::<String>(), "the line hangs straight");
        let reasons: Vec<_> = events.iter().map(|e| &e["choices"][0]["finish_reason"]).collect();
        assert_eq!(reasons, [&Value::Null, &Value::Null, &Value::Null, &json!("length")]);
        assert!(events.iter().all(|e| e.get("usage").is_none()));
    }
}

/// Mutants: a counter that is not recorded; a queue that lets the second request in.
#[tokio::test]
async fn metrics_move_with_the_load() {
    let server = start(EngineSettings::default());
    send(&server, "/v1/completions", r#"{"prompt":"12345678","max_tokens":3}"#).await;
    let (_, page) = send(&server, "/metrics", "").await;
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert_eq!(value(&page, "vllm:prompt_tokens_total{"), 2.0);
    assert_eq!(value(&page, "vllm:generation_tokens_total{"), 3.0);
    assert_eq!(value(&page, "vllm:time_to_first_token_seconds_count{"), 1.0);
    assert_eq!(value(&page, "vllm:time_per_output_token_seconds_count{"), 2.0);
    assert_eq!(value(&page, "vllm:num_requests_running{"), 0.0);
    assert!(value(&page, "process_start_time_seconds") > 1.6e9);

    let busy = start(EngineSettings { max_num_seqs: 1, ..EngineSettings::default() });
    let body = r#"{"prompt":"1234","max_tokens":100000,"stream":true}"#;
    let _first = client().request(request(&busy, "/v1/completions", body)).await.unwrap();
    let _second = client().request(request(&busy, "/v1/completions", body)).await.unwrap();
    let loaded = |page: &str| {
        value(page, "vllm:num_requests_running{") == 1.0
            && value(page, "vllm:num_requests_waiting{") == 1.0
            && value(page, "vllm:kv_cache_usage_perc{") > 0.0
    };
    until(|| loaded(&busy.metrics_page())).await;
}

/// Mutant: an in-flight request that forgets to abort keeps the slot, and the wait never ends.
#[tokio::test]
async fn a_client_that_leaves_frees_its_slot() {
    for (stream, http2) in [(false, false), (true, false), (false, true), (true, true)] {
        let server = start(endless());
        let body = format!(r#"{{"prompt":"12345678","stream":{stream}}}"#);
        let client =
            Client::builder(TokioExecutor::new()).http2_only(http2).build_http::<Full<Bytes>>();
        let call = client.request(request(&server, "/v1/completions", body));
        let call = tokio::spawn(async move { call.await.unwrap().collect().await.map(drop) });
        until(|| server.state()["running"] == 1).await;
        call.abort();
        until(|| server.state()["running"] == 0).await;
        assert_eq!(server.state()["finished"]["abort"], 1, "stream {stream}, HTTP/2 {http2}");
    }
}

/// Mutants: a fault that strikes the admin path, or one that is not carried out.
#[tokio::test]
async fn faults_strike_requests_and_nothing_else() {
    let server = start(EngineSettings::default());
    let fault =
        |kind| Change { fault: Some(Some(Fault { kind, ratio: 1.0 })), ..Change::default() };
    let body = r#"{"prompt":"x","max_tokens":1}"#;
    server.set(&fault(FaultKind::Status { code: 503 }));
    let (head, answer) = send(&server, "/v1/completions", body).await;
    assert_eq!(
        (head.status().as_u16(), &head.headers()["x-sim-endpoint"]),
        (503, &"sim-test".parse().unwrap())
    );
    assert!(String::from_utf8_lossy(&answer).contains("\"code\":503"));

    server.set(&fault(FaultKind::Drop));
    assert!(client().request(request(&server, "/v1/completions", body)).await.is_err());
    assert_eq!(send(&server, "/health", "").await.0.status(), 200);
    assert_eq!(send(&server, "/metrics", "").await.0.status(), 200);

    server.set(&fault(FaultKind::Slow { delay_ms: 1 }));
    assert_eq!(send(&server, "/v1/completions", body).await.0.status(), 200);

    // A hanging request ends with the server's next life only.
    server.set(&fault(FaultKind::Hang));
    let hanging = client().request(request(&server, "/echo", "x"));
    let restart = async {
        until(|| server.received().as_array().unwrap().len() == 4).await;
        server.restart();
    };
    let (hung, ()) = within(async { tokio::join!(hanging, restart) }).await;
    assert!(hung.is_err());
    server.set(&Change { fault: Some(None), ..Change::default() });
    assert_eq!(send(&server, "/v1/completions", body).await.0.status(), 200);
}

/// Mutants: `set` that ignores a key or changes half of a refused document.
#[tokio::test]
async fn pins_freezing_and_metrics_modes() {
    let server = start(EngineSettings::default());
    let set =
        json_of(&server, "/admin/set", r#"{"waiting":9,"kv":0.75,"freeze_metrics":true}"#).await;
    assert_eq!(set["set"]["waiting"], 9);
    send(&server, "/v1/completions", r#"{"prompt":"x","max_tokens":1}"#).await;
    server.set(&Change { waiting: Some(None), ..Change::default() });
    let page = server.metrics_page();
    assert_eq!(value(&page, "vllm:num_requests_waiting{"), 9.0);
    assert_eq!(value(&page, "vllm:prompt_tokens_total{"), 0.0, "frozen");
    server.set(&Change { freeze_metrics: Some(false), ..Change::default() });
    let page = server.metrics_page();
    assert_eq!(value(&page, "vllm:num_requests_waiting{"), 0.0);
    assert_eq!(value(&page, "vllm:kv_cache_usage_perc{"), 0.75);
    assert_eq!(value(&page, "vllm:prompt_tokens_total{"), 1.0);

    let (head, refused) = send(&server, "/admin/set", r#"{"kv":0.1,"waitng":1}"#).await;
    assert_eq!(head.status(), 400);
    let refused = String::from_utf8(refused.to_vec()).unwrap();
    assert!(refused.contains("waitng") && refused.contains("known keys: waiting"), "{refused}");
    assert_eq!(server.state()["set"]["kv"], 0.75);

    for (mode, status, empty) in [
        (MetricsMode::Error, 500, false),
        (MetricsMode::Empty, 200, true),
        (MetricsMode::Garbage, 200, false),
    ] {
        server.set(&Change { metrics: Some(mode), ..Change::default() });
        let (head, body) = send(&server, "/metrics", "").await;
        assert_eq!((head.status().as_u16(), body.is_empty()), (status, empty), "{mode:?}");
        assert!(!body.starts_with(b"# HELP"));
    }
}

/// Mutants: a start time that does not move, counters that survive, or a connection left open.
#[tokio::test]
async fn a_restart_cuts_the_clients_and_starts_at_zero() {
    let server = start(EngineSettings::default());
    let body = r#"{"prompt":"12345678","max_tokens":1}"#;
    send(&server, "/v1/completions", body).await;
    let before = server.metrics_page();
    assert_eq!(value(&before, "vllm:prompt_tokens_total{"), 2.0);
    let body = r#"{"prompt":"12345678","max_tokens":100000,"stream":true}"#;
    let streaming = client().request(request(&server, "/v1/completions", body)).await.unwrap();
    server.restart();
    assert!(within(streaming.into_body().collect()).await.is_err());
    let (after, start_time) = (server.metrics_page(), "process_start_time_seconds");
    assert!(value(&after, start_time) > value(&before, start_time));
    assert_eq!(value(&after, "vllm:prompt_tokens_total{"), 0.0);
    assert_eq!(server.state()["running"], 0);
}

/// Mutant: the connection that carries the order cut with the others.
#[tokio::test]
async fn a_restart_by_http_spares_the_connection_that_asked() {
    let server = start(EngineSettings::default());
    let stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request(&server, "/admin/restart", "{}")).await.unwrap();
    let answer = response.collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["restarts"], 1);
    let response = sender.send_request(request(&server, "/health", "")).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(sender);
    connection.await.unwrap().unwrap();
}

/// Mutant: a listener that outlives `kill`, or connections that do.
#[tokio::test]
async fn a_stopped_server_frees_its_port_and_cuts_its_clients() {
    let server = start(endless());
    let address: SocketAddr = server.addr();
    let call = request(&server, "/v1/completions", r#"{"prompt":"x","stream":true}"#);
    let streaming = client().request(call).await.unwrap();
    server.stop().await;
    assert!(within(streaming.into_body().collect()).await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn other_paths_echo_and_the_heads_are_remembered() {
    let server = start(EngineSettings::default());
    let mut call = request(&server, "/echo?a=b", vec![0_u8, 255, 10]);
    call.headers_mut().append("x-twice", "1".parse().unwrap());
    call.headers_mut().append("x-twice", "2".parse().unwrap());
    let response = client().request(call).await.unwrap();
    assert_eq!(response.headers()["x-body-length"], "3");
    // sha256 of the three bytes, as `sha256sum` prints it.
    let hash = "712450d3c4a79eea9509e75dc1dacdeff58034df538536cfae2da882bd8a0c50";
    assert_eq!(response.headers()["x-body-sha256"], hash);
    assert_eq!(response.collect().await.unwrap().to_bytes(), vec![0_u8, 255, 10]);
    let report = json_of(&server, "/v1/embeddings", "abc").await;
    assert_eq!((&report["path"], &report["body_length"]), (&json!("/v1/embeddings"), &json!(3)));
    let received = json_of(&server, "/admin/received", "").await;
    assert_eq!(received.as_array().unwrap().len(), 2);
    assert_eq!(received[0]["path"], "/echo?a=b");
    let headers = received[0]["headers"].as_array().unwrap();
    assert!(
        headers.contains(&json!(["x-twice", "1"])) && headers.contains(&json!(["x-twice", "2"]))
    );
    for _ in 0..101 {
        send(&server, "/v1/models", "").await;
    }
    let received = server.received();
    assert_eq!(received.as_array().unwrap().len(), 100);
    assert_eq!(received[0]["path"], "/v1/models");
    let models = json_of(&server, "/v1/models", "").await;
    assert_eq!(models["data"][0]["id"], "m");
}

/// Mutants: request trailers dropped, response trailers sent unasked, or the flag ignored.
#[tokio::test]
async fn trailers_pass_both_ways_over_h2() {
    let server = start(EngineSettings::default());
    let stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    for (asked, wanted) in [(Some("1"), true), (Some("0"), false), (None, false)] {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "abc".parse().unwrap());
        let frames: [Result<_, std::convert::Infallible>; 2] =
            [Ok(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(trailers))];
        let body = StreamBody::new(tokio_stream::iter(frames)).boxed();
        let mut call = Request::post(format!("http://{}/echo", server.addr())).body(body).unwrap();
        if let Some(asked) = asked {
            call.headers_mut().insert("x-want-trailers", asked.parse().unwrap());
        }
        let response: Response<Incoming> = sender.send_request(call).await.unwrap();
        assert_eq!(response.headers()["x-request-trailers"], "x-checksum=abc");
        let collected = response.collect().await.unwrap();
        let done = collected.trailers().map(|trailers| trailers["x-sim-trailer"].clone());
        assert_eq!(done, wanted.then(|| "done".parse().unwrap()));
        assert_eq!(collected.to_bytes(), "body");
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}
