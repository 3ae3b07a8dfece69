// A call, without other packages: a WebSocket to the runner, with one protobuf frame in each binary message.
//
//     Frame { AudioRawFrame audio = 2; MessageFrame message = 4; InterruptionFrame interruption = 5; }
//     AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }
//     MessageFrame { string data = 1; }
//
// `answer` is for a bot. `startRunner` and `Connection` are for its test.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { createInterface } from 'node:readline';

const RATE_HZ = 16000;
const AUDIO = 2, MESSAGE = 4, INTERRUPTION = 5;
const BINARY = 2, CLOSE = 8, PING = 9, PONG = 10;
// The runner takes at most 1 MiB in one message.
const SPEECH_BYTES = 65536;

/** Returns the call that the runner has started this program for. */
export async function answer() {
  const given = JSON.parse(process.env.RUNNER_ARGUMENTS ?? '{}');
  if (!given.media_url) throw new Error('there is no call: start this file by `edge-runner -- node bot.js`');
  const call = await Call.open(given.media_url);
  call.arguments = given;
  return call;
}

/** The frames of a call. */
export class Connection {
  static open(url) {
    const headers = {
      Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': 13,
      'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
    };
    return new Promise((resolve, reject) => {
      const asked = request(url.replace('ws:', 'http:'), { headers });
      asked.on('upgrade', (_, socket, head) => resolve(new this(socket, head)));
      asked.on('response', (reply) => reject(new Error(`the runner answers ${reply.resume().statusCode}`)));
      asked.on('error', reject);
      asked.end();
    });
  }

  constructor(socket, head) {
    this.socket = socket.setNoDelay();
    this.head = head;
    // The call is over when the connection is, whatever has ended it.
    socket.on('error', () => {});
  }

  /** Yields `['audio', pcm]` and `['message', object]` until the call is over. */
  async *frames() {
    for await (const data of this.#messages()) {
      const frame = fields(data);
      if (frame[AUDIO]) yield ['audio', fields(frame[AUDIO])[3] ?? Buffer.alloc(0)];
      if (!frame[MESSAGE]) continue;
      const message = parsed(fields(frame[MESSAGE])[1]);
      if (message) yield ['message', message];
    }
  }

  /** Queues speech: 16-bit mono PCM at 8000 to 48000 Hz. The runner plays it in time. */
  say(pcm, rateHz = RATE_HZ) {
    for (let at = 0; at < pcm.length; at += SPEECH_BYTES) {
      const part = pcm.subarray(at, at + SPEECH_BYTES);
      this.#send(AUDIO, Buffer.concat([field(3, part), field(4, rateHz), field(5, 1)]));
    }
  }

  /** Drops the speech that has not been heard. */
  interrupt() {
    this.#send(INTERRUPTION, Buffer.alloc(0));
  }

  /** Sends a message, ahead of queued speech. */
  send(message) {
    this.#send(MESSAGE, field(1, Buffer.from(JSON.stringify(message))));
  }

  /** Ends the call once all speech has been sent. */
  close() {
    this.#write(CLOSE, Buffer.from([3, 232]));
    this.socket.end();
  }

  #send(number, content) {
    this.#write(BINARY, field(number, content));
  }

  async *#messages() {
    let data = this.head, parts = [];
    const chunks = this.socket.iterator({ destroyOnReturn: false });
    while (true) {
      while (data.length >= 2) {
        let at = 2, length = data[1] & 127;
        if (length > 125) at = length === 126 ? 4 : 10;
        if (data.length < at) break;
        if (at === 4) length = data.readUInt16BE(2);
        if (at === 10) length = Number(data.readBigUInt64BE(2));
        if (data.length < at + length) break;
        const opcode = data[0] & 15, isLast = data[0] & 128, part = data.subarray(at, at + length);
        data = data.subarray(at + length);
        if (opcode === CLOSE) return this.close();
        if (opcode === PING) this.#write(PONG, part);
        if (opcode > BINARY) continue;
        parts.push(part);
        if (!isLast) continue;
        yield Buffer.concat(parts);
        parts = [];
      }
      const { value, done } = await chunks.next().catch(() => ({ done: true }));
      if (done) return;
      data = Buffer.concat([data, value]);
    }
  }

  #write(opcode, data) {
    const length = data.length, key = randomBytes(4);
    const head = Buffer.alloc(length < 126 ? 2 : length < 65536 ? 4 : 10);
    head[0] = 128 | opcode;
    head[1] = 128 | (head.length === 2 ? length : head.length === 4 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(length, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2);
    if (this.socket.writable) this.socket.write(Buffer.concat([head, key, data.map((byte, at) => byte ^ key[at & 3])]));
  }
}

/** A call, as its bot has it. */
export class Call extends Connection {
  /** Yields `['audio', pcm]`; `['ready']`, once the caller's screen can show texts; `['text', typed]`; `['key', keys]`;
   * `['message', object]` for everything else. */
  async *events() {
    for await (const [kind, value] of this.frames()) {
      if (value.type === 'client-ready') {
        this.send(rtvi('bot-ready', { version: '2.1.0' }, value.id));
        yield ['ready'];
      } else if (value.type === 'send-text') yield ['text', String(value.data?.content ?? '')];
      // A telephone has `digit`, the keypad of a page `buttons`.
      else if (value.type === 'dtmf') yield ['key', String(value.digit ?? value.data?.buttons?.join('') ?? '')];
      else yield [kind, value];
    }
  }

  /** Shows a text on the caller's screen. A telephone has none. */
  show(text) {
    this.send(rtvi('bot-output', { text }));
  }
}

/** Starts a runner on free ports. EDGE_RUNNER names it if it is not in PATH. */
export async function startRunner(...args) {
  const program = process.env.EDGE_RUNNER ?? 'edge-runner';
  const child = spawn(program, ['--port', '0', '--rtc-port', '0', ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
  const failed = new Promise((_, reject) => child.on('error', reject));
  const ended = new Promise((resolve) => child.on('exit', resolve));
  const log = [];
  const listening = new Promise((resolve, reject) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      log.push(line);
      const port = /listening on \S+?:(\d+)/.exec(line)?.[1];
      if (port) resolve(port);
    }).on('close', () => reject(new Error(`the runner does not start:\n${log.join('\n')}`)));
  });
  const url = `ws://localhost:${await Promise.race([listening, failed])}/ws-client`;
  return { url, log, stop: () => (child.kill(), ended) };
}

/** A message of RTVI, which clients with a screen speak. */
export function rtvi(type, data, id = '1') {
  return { label: 'rtvi-ai', type, id, data };
}

function parsed(text) {
  try {
    const message = JSON.parse(text);
    return typeof message === 'object' ? message : null;
  } catch {
    return null;
  }
}

/** The fields of a protobuf message by number, as numbers and buffers. */
function fields(data) {
  const found = {};
  let at = 0;
  const number = () => {
    let value = 0, shift = 1, byte;
    do {
      byte = data[at++];
      value += (byte & 127) * shift;
      shift *= 128;
    } while (byte > 127);
    return value;
  };
  while (at < data.length) {
    const key = number();
    let value = number();
    if ((key & 7) === 2) value = data.subarray(at, (at += value));
    found[key >> 3] = value;
  }
  return found;
}

/** One field of a protobuf message. */
function field(key, value) {
  if (typeof value === 'number') return Buffer.from([...varint(key << 3), ...varint(value)]);
  return Buffer.concat([Buffer.from([...varint((key << 3) | 2), ...varint(value.length)]), value]);
}

function varint(value) {
  const out = [];
  for (; value > 127; value = Math.floor(value / 128)) out.push((value & 127) | 128);
  return [...out, value];
}
