// A bot in Node that is loaded before its calls: `edge-runner --warm 1 -- node warm_echo.mjs`.
//
// It plays back what it hears. Put slow imports and models above `ready`: a call does not wait for them.
// "Warm processes" in docs/bots.md describes the messages. Needs Node 22 for its WebSocket.
import { Socket } from "node:net";
import { createInterface } from "node:readline";

if (!process.env.EDGE_RUNNER_WARM) {
  console.error("start it with `edge-runner --warm 1 -- node warm_echo.mjs`");
  process.exit(1);
}
if (!globalThis.WebSocket) {
  console.error(`it needs Node 22 or later, for its WebSocket: this is ${process.version}`);
  process.exit(1);
}
// The standard input is a socket, one JSON object a line in both directions.
const runner = new Socket({ fd: 0, readable: true, writable: true });
runner.on("close", () => process.exit(0));

function ready() {
  runner.write(`${JSON.stringify({ hello: 1, mode: "once", files: [process.argv[1]], pings: true })}\n`);
}

createInterface({ input: runner }).on("line", (line) => {
  const { ping, arguments: call } = JSON.parse(line);
  if (!call) {
    runner.write(`${JSON.stringify({ pong: ping })}\n`);
    return;
  }
  console.log(`a call of kind ${call.kind}`);
  const media = new WebSocket(call.media_url);
  media.binaryType = "arraybuffer";
  // A frame of audio that goes back is audio of the bot.
  media.onmessage = ({ data }) => media.send(data);
  media.onclose = () => process.exit(0);
});
ready();
