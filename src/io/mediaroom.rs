//! The task of one session in a media room: signalling, UDP, the bot's queues and the clock around `proto::mediaroom`.
