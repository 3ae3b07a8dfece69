//! Limits of HTTP: the server with its requests and forms, TLS, and requests to providers.

use std::time::Duration;

// ---- HTTP

/// Open connections: six of each of forty browsers; further ones wait in the accept queue of the
/// system.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// Bytes of the head of a request: browsers add the cookies of other programs on `localhost`, which
/// sometimes fill 8 KiB.
pub const HTTP_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a JSON body: twenty times a long offer.
pub const HTTP_BODY_BYTES_MAX: usize = 256 * 1024;
/// Time between two requests of a connection; longer than the usual 60 s of a proxy.
pub const HTTP_IDLE: Duration = Duration::from_secs(75);
/// Time from the end of the head of a request to the last byte of the response.
pub const HTTP_ANSWER: Duration = Duration::from_secs(30);

// ---- bodies of requests

/// Bytes of the SDP in an offer: all codecs and candidates of a browser with many interfaces take
/// about 20 KiB.
pub const OFFER_SDP_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an uploaded file (`--uploads-folder`): the limit of Pipecat's runner.
pub const UPLOAD_BYTES_MAX: u64 = 50 * 1024 * 1024;

// ---- TLS

/// Validity of a certificate of `--tls auto`: systems of Apple reject more than 825 days.
pub const CERTIFICATE_VALID: Duration = Duration::from_secs(800 * 86_400);
/// Validity of the certificate authority: longer than the life of a board, since people install it
/// on every device by hand.
pub const AUTHORITY_VALID: Duration = Duration::from_secs((20 * 365 + 5) * 86_400);
/// Remaining validity of a certificate from files below which a warning is logged.
pub const CERTIFICATE_LEFT_MIN: Duration = Duration::from_secs(7 * 86_400);
/// Names in one certificate of `--tls acme`: the limit of Let's Encrypt.
pub const ACME_NAMES_MAX: usize = 100;

// ---- provider REST

/// Time of one request to a provider, from the name resolution to the last byte of the response.
pub const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses before the second and third attempt to hang up: a failing provider usually recovers
/// within a second or two.
pub const HANG_UP_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Keys that a bot sends to the caller at once: an account number and its PIN.
pub const KEYS_SENT_MAX: usize = 32;
/// Lifetime of a video room and its token, as in Pipecat.
pub const ROOM_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Difference between the timestamp of a signed webhook and the clock, in seconds; the rule of the
/// provider.
pub const SIGNATURE_AGE_MAX_S: u64 = 300;

// ---- internal

/// Time after which a stream of events without an event sends a comment: less than the idle time of
/// usual proxies, and a client that is gone is noticed with the next one.
pub const HTTP_HEARTBEAT: Duration = Duration::from_secs(15);
/// Header lines of a request; browsers send about twenty.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Bytes of an oversized body that are read and discarded, so that the client receives the
/// rejection.
pub const HTTP_DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// Time from the end of the head to the end of the body: 256 KiB on a bad mobile network. It is
/// also the longest pause within a body.
pub const HTTP_BODY: Duration = Duration::from_secs(8);
/// Longest pause between accepts: a process without file descriptors has to wait for one anyway.
pub const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(1_280);
/// Value of `Retry-After`, in seconds: on a full runner, sessions end every few seconds.
pub const RETRY_AFTER_S: u32 = 5;
/// Bytes of a `pc_id`; those that the runner issues are far shorter.
pub const PC_ID_BYTES_MAX: usize = 128;
/// Candidates in one PATCH: those that a dozen interfaces and four sections yield in 200 ms.
pub const CANDIDATES_MAX: usize = 128;
/// Bytes of one candidate line; the longest that browsers make are about 250.
pub const CANDIDATE_BYTES_MAX: usize = 512;
/// Bytes of the boundary of a form: the limit of RFC 2046.
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of names and values before the file of a form: the limit of S3. The fields of an upload
/// grant have about two thousand.
pub const FIELDS_BYTES_MAX: usize = 20_000;
/// Bytes of a form outside its file: fields, headers of parts, and delimiters. A sender that
/// declares more than this above the largest file is rejected early.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Names and addresses in one certificate: those of a machine with a hundred containers, in 2 KiB.
pub const CERTIFICATE_NAMES_MAX: usize = 128;
/// Pause after the first order that did not reach the directory; it doubles. A board may start
/// before its network.
pub const ACME_UNREACHABLE_PAUSE_FIRST: Duration = Duration::from_secs(10);
/// The longest pause after an order that the directory has refused.
pub const ACME_REFUSED_PAUSE_MAX: Duration = Duration::from_secs(8 * 3600);
/// The longest pause that a directory can ask for: the limits of Let's Encrypt refill within a
/// week.
pub const ACME_RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Time for one order, which directories answer in seconds.
pub const ACME_ORDER_WITHIN: Duration = Duration::from_secs(300);
/// Characters of the description of a failed order: such a text, three times the longest name, and
/// advice.
pub const ACME_FAILURE_CHARS_MAX: usize = 1_600;
/// Time to connect to one address of a provider: enough for one lost SYN, short enough to leave
/// time for the next address when an IPv6 path is dead.
pub const REST_CONNECT: Duration = Duration::from_secs(3);
/// Addresses of one provider that are tried per request.
pub const REST_ADDRESSES_MAX: usize = 3;
/// Bytes of the head of a response; providers send about 2 KiB.
pub const REST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the body of a response: a call or a room takes about 4 KiB.
pub const REST_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the id of a call to hang up; the longest of the providers have about 100.
pub const HANG_UP_ID_BYTES_MAX: usize = 512;
/// Characters of the reason of a provider that are logged.
pub const REST_REASON_CHARS_MAX: usize = 120;
/// Characters of one word of that reason: longer words are ids, keys and paths.
pub const REST_REASON_WORD_CHARS_MAX: usize = 20;
/// Pauses before the further attempts to create a room or a token: the provider limits requests per
/// second.
pub const ROOM_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Time to create a room and its token, with all retries: the page waits 15 s for a response.
/// Together with [`HTTP_BODY`] it is within [`HTTP_ANSWER`].
pub const ROOM_WITHIN: Duration = Duration::from_secs(14);
/// Bytes of the SIP headers of a dial-in call, as JSON: the provider passes on a few headers of the
/// caller.
pub const DIALIN_HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Parameters of a webhook's form or query; providers send about 30.
pub const FORM_PAIRS_MAX: usize = 256;
/// Bytes of the number of a caller that is passed on as a parameter; a SIP address is longer than a
/// number.
pub const CALLER_BYTES_MAX: usize = 256;
/// Signatures in one header: one per valid token while tokens are rotated.
pub const SIGNATURES_MAX: usize = 8;
