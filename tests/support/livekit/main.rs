//! The LiveKit test server as a program.
//!
//!     media-room [--address IP] [--port N] [--udp-port N | --udp-ports-of-their-own]
//!                [--ice-full] [--no-red] [--key KEY:SECRET] [--ping INTERVAL:TIMEOUT]
//!                [--no-auto-create]
//!
//! It prints `listening on URL` once it listens. Each line of standard input is an order in JSON,
//! or `stats`, which is answered with a line of JSON. It exits at the end of standard input without
//! any leave; `{"order": "shutdown"}` stops it gracefully.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a server of the tests has sockets and clocks of its own"
)]

#[path = "mod.rs"]
#[allow(dead_code, reason = "tests use more of it than this program")]
mod room;

use std::process::ExitCode;

use room::{Options, Order, Server};
use tokio::sync::mpsc;

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let bad = |text: &str| format!("{name}: not understood: {text}");
        let pair = |text: &str| text.split_once(':').map(|(one, two)| (one.to_owned(), two.to_owned()));
        match name.as_str() {
            "--address" => options.address = value()?.parse().map_err(|_| bad("an IP address is due"))?,
            "--port" => options.port = value()?.parse().map_err(|_| bad("a port is due"))?,
            "--udp-port" => options.udp_port = Some(value()?.parse().map_err(|_| bad("a port is due"))?),
            "--udp-ports-of-their-own" => options.udp_port = None,
            "--ice-full" => options.ice_lite = false,
            "--no-red" => options.red = false,
            "--no-auto-create" => options.auto_create = false,
            "--key" => (options.key, options.secret) = pair(&value()?).ok_or_else(|| bad("KEY:SECRET is due"))?,
            "--ping" => {
                let times = pair(&value()?).and_then(|(one, two)| Some((one.parse().ok()?, two.parse().ok()?)));
                (options.ping_interval_s, options.ping_timeout_s) =
                    times.ok_or_else(|| bad("two numbers of seconds are due"))?;
            }
            _ => return Err(bad("no such option")),
        }
    }
    Ok(options)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let options = match options() {
        Ok(options) => options,
        Err(words) => {
            eprintln!("{words}");
            return ExitCode::from(2);
        }
    };
    let server = match Server::start(options).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("the ports: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("listening on {}", server.url());
    let (received, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if received.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        if line == "stats" {
            let stats = server.stats().await;
            println!("{}", serde_json::to_string(&stats).expect("numbers and names"));
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Order::Shutdown) => {
                server.stop(true).await;
                // The last messages leave with the tasks of the sockets.
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                return ExitCode::SUCCESS;
            }
            Ok(order) => server.order(order),
            Err(error) => eprintln!("{line}: {error}"),
        }
    }
    ExitCode::SUCCESS
}
