//! Limits of HTTP: the server with its requests and forms, TLS, and requests to providers.

use std::time::Duration;

// ---- HTTP

/// Open connections: six of each of forty browsers; further ones wait in the accept queue of the
/// system.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// Bytes of the head of a request: browsers add the cookies of other programs on `localhost`, which
/// sometimes fill 8 KiB.
pub const HTTP_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header lines of a request; browsers send about twenty.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Bytes of a JSON body: twenty times a long offer.
pub const HTTP_BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of an oversized body that are read and discarded, so that the client receives the
/// rejection.
pub const HTTP_DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// Time from the first byte of a request to the end of its head.
pub const HTTP_HEAD: Duration = Duration::from_secs(10);
/// Time from a new connection to the end of the head of its first request, including TLS: three
/// round trips over the worst network.
pub const HTTP_FIRST_HEAD: Duration = Duration::from_secs(8);
/// Time from the end of the head to the end of the body: 256 KiB on a bad mobile network. It is
/// also the longest pause within a body.
pub const HTTP_BODY: Duration = Duration::from_secs(8);
/// Time between two requests of a connection; longer than the usual 60 s of a proxy.
pub const HTTP_IDLE: Duration = Duration::from_secs(75);
/// Time that a client may leave a response unread.
pub const HTTP_STALL: Duration = Duration::from_secs(10);
/// Time from the end of the head of a request to the last byte of the response.
pub const HTTP_ANSWER: Duration = Duration::from_secs(30);
/// Time that a client has to close its side after the runner closed its own.
pub const HTTP_LINGER: Duration = Duration::from_secs(1);
/// Time that requests in progress have to complete when the runner shuts down.
pub const HTTP_GRACE: Duration = Duration::from_secs(1);
/// First pause after a failed accept; it doubles with each consecutive failure.
pub const ACCEPT_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between accepts: a process without file descriptors has to wait for one anyway.
pub const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(1_280);
/// Consecutive errors of a datagram socket that cause no pause: ICMP errors for each datagram of a
/// batch.
pub const READ_ERRORS_FREE: u32 = 10;
/// First pause after further errors; it doubles with each.
pub const READ_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between reads of a failing socket: one attempt per second is cheap, and a socket
/// that recovers is soon in use again.
pub const READ_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Value of `Retry-After`, in seconds: on a full runner, sessions end every few seconds.
pub const RETRY_AFTER_S: u32 = 5;

// ---- bodies of requests

/// Bytes of the SDP in an offer: all codecs and candidates of a browser with many interfaces take
/// about 20 KiB.
pub const OFFER_SDP_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a `pc_id`; those that the runner issues are far shorter.
pub const PC_ID_BYTES_MAX: usize = 128;
/// Candidates in one PATCH: those that a dozen interfaces and four sections yield in 200 ms.
pub const CANDIDATES_MAX: usize = 128;
/// Bytes of one candidate line; the longest that browsers make are about 250.
pub const CANDIDATE_BYTES_MAX: usize = 512;
/// Bytes of a media section's name.
pub const MID_BYTES_MAX: usize = 64;
/// Bytes of the name of a transport in `/start`; the longest name has eleven.
pub const TRANSPORT_BYTES_MAX: usize = 64;
/// Bytes of an endpoint name, and of a session id in a path; valid ones are shorter.
pub const ENDPOINT_NAME_BYTES_MAX: usize = 64;
/// Characters of a `User-Agent` that are passed to the bot: browsers send some 150.
pub const USER_AGENT_CHARS_MAX: usize = 256;
/// Problems that one 422 response lists.
pub const PROBLEMS_MAX: usize = 16;
/// Characters of a rejected body that are logged.
pub const LOGGED_BODY_CHARS_MAX: usize = 5_000;
/// Rejected bodies that are logged per `LINES_WINDOW`: a broken client repeats itself.
pub const LOGGED_BODIES_MAX: u32 = 30;

// ---- forms with parts

/// Bytes of the boundary of a form: the limit of RFC 2046.
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of names and values before the file of a form: the limit of S3. The fields of an upload
/// grant have about two thousand.
pub const FIELDS_BYTES_MAX: usize = 20_000;
/// Bytes of the header of a part of a form: the longest file name, percent-encoded twice, and a few
/// more lines.
pub const PART_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a form outside its file: fields, headers of parts, and delimiters. A sender that
/// declares more than this above the largest file is rejected early.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

// ---- TLS

/// Validity of a certificate of `--tls auto`: systems of Apple reject more than 825 days.
pub const CERTIFICATE_VALID: Duration = Duration::from_secs(800 * 86_400);
/// Time before its creation at which a certificate becomes valid: clocks of clients may be slow,
/// and some boards keep local time.
pub const CERTIFICATE_BACKDATED: Duration = Duration::from_secs(2 * 86_400);
/// Validity of the certificate authority: longer than the life of a board, since people install it
/// on every device by hand.
pub const AUTHORITY_VALID: Duration = Duration::from_secs((20 * 365 + 5) * 86_400);
/// Names and addresses in one certificate: those of a machine with a hundred containers, in 2 KiB.
pub const CERTIFICATE_NAMES_MAX: usize = 128;
/// Interval of checks for new addresses of the machine and for the end of the certificate.
pub const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time that another runner may lock the state folder; it needs milliseconds.
pub const STATE_LOCK_WITHIN: Duration = Duration::from_secs(5);
/// Remaining validity of a certificate from files below which a warning is logged.
pub const CERTIFICATE_LEFT_MIN: Duration = Duration::from_secs(7 * 86_400);
/// Pause after the first failed order of `--tls acme` that counts towards limits of the directory;
/// it doubles. Let's Encrypt allows 5 failed validations per name and hour, and these make 3.
pub const ACME_REFUSED_PAUSE_FIRST: Duration = Duration::from_secs(15 * 60);
/// The longest of these pauses.
pub const ACME_REFUSED_PAUSE_MAX: Duration = Duration::from_secs(8 * 3600);
/// Pause after the first order that did not reach the directory; it doubles. A board may start
/// before its network.
pub const ACME_UNREACHABLE_PAUSE_FIRST: Duration = Duration::from_secs(10);
/// The longest of these pauses.
pub const ACME_UNREACHABLE_PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The longest pause that a directory can ask for: the limits of Let's Encrypt refill within a
/// week.
pub const ACME_RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Time for one order, which directories answer in seconds.
pub const ACME_ORDER_WITHIN: Duration = Duration::from_secs(300);
/// Longest sleep before the clock is read again, which may have been set meanwhile.
pub const ACME_LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Names in one certificate of `--tls acme`: the limit of Let's Encrypt.
pub const ACME_NAMES_MAX: usize = 100;
/// Characters of an error of the directory in the log.
pub const ACME_DETAIL_CHARS_MAX: usize = 400;
/// Characters of the description of a failed order: such a text, three times the longest name, and
/// advice.
pub const ACME_FAILURE_CHARS_MAX: usize = 1_600;
/// Bytes per direction that TLS buffers for a peer that reads slowly: one record.
pub const TLS_BUFFER_BYTES_MAX: usize = 16 * 1024;

// ---- provider REST

/// Time of one request to a provider, from the name resolution to the last byte of the response.
pub const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect to one address of a provider: enough for one lost SYN, short enough to leave
/// time for the next address when an IPv6 path is dead.
pub const REST_CONNECT: Duration = Duration::from_secs(3);
/// Addresses of one provider that are tried per request.
pub const REST_ADDRESSES_MAX: usize = 3;
/// Bytes of the head of a response; providers send about 2 KiB.
pub const REST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the body of a response: a call or a room takes about 4 KiB.
pub const REST_BODY_BYTES_MAX: usize = 64 * 1024;
/// Pauses before the second and third attempt to hang up: a failing provider usually recovers
/// within a second or two.
pub const HANG_UP_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Bytes of the id of a call to hang up; the longest of the providers have about 100.
pub const HANG_UP_ID_BYTES_MAX: usize = 512;
/// Bytes of the target of a transfer: a long URL.
pub const TRANSFER_TARGET_BYTES_MAX: usize = 512;
/// Keys that a bot sends to the caller at once: an account number and its PIN.
pub const KEYS_SENT_MAX: usize = 32;
/// Keys that wait for the telephones in a room.
pub const KEYS_WAITING_MAX: usize = 4 * KEYS_SENT_MAX;
/// Characters of the reason of a provider that are logged.
pub const REST_REASON_CHARS_MAX: usize = 120;
/// Characters of one word of that reason: longer words are ids, keys and paths.
pub const REST_REASON_WORD_CHARS_MAX: usize = 20;
/// Pauses before the further attempts to create a room or a token: the provider limits requests per
/// second.
pub const VIDEOROOM_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Time to create a room and its token, with all retries: the page waits 15 s for a response.
/// Together with [`HTTP_BODY`] it is within [`HTTP_ANSWER`].
pub const VIDEOROOM_WITHIN: Duration = Duration::from_secs(14);
/// Lifetime of a video room and its token, as in Pipecat.
pub const VIDEOROOM_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Bytes of a video room's URL; names have at most 128.
pub const VIDEOROOM_URL_BYTES_MAX: usize = 2_048;
/// Bytes of a meeting token; with a few properties in it, it has some hundreds.
pub const VIDEOROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Dial-in calls that are remembered, so that a repeated webhook starts no second bot: more than a
/// board answers in that time.
pub const DIALIN_CALLS_MAX: usize = 256;
/// Bytes of the SIP headers of a dial-in call, as JSON: the provider passes on a few headers of the
/// caller.
pub const DIALIN_HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a number or an id of a dial-in call: ids have 36, and a SIP address is longer than a
/// number.
pub const DIALIN_FIELD_BYTES_MAX: usize = 256;
/// Parameters of a webhook's form or query; providers send about 30.
pub const FORM_PAIRS_MAX: usize = 256;
/// Bytes of the number of a caller that is passed on as a parameter; a SIP address is longer than a
/// number.
pub const CALLER_BYTES_MAX: usize = 256;
/// Difference between the timestamp of a signed webhook and the clock, in seconds; the rule of the
/// provider.
pub const SIGNATURE_AGE_MAX_S: u64 = 300;
/// Signatures in one header: one per valid token while tokens are rotated.
pub const SIGNATURES_MAX: usize = 8;
