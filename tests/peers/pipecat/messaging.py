"""WhatsApp calls: comparison of the runner with the client of Pipecat and the models of pywa."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import pathlib
import time
import urllib.request

import aiohttp
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError
from checks import until
from hangup import Server
from pipecat.transports.whatsapp.api import WhatsAppApi, WhatsAppConnectCallValue, WhatsAppWebhookRequest
from pipecat.transports.whatsapp.client import WhatsAppClient

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "data" / "whatsapp"
SECRET, TOKEN, NUMBER = "secret-of-the-check", "token-of-the-check", "1060000001"
VARIABLES = {
    "WHATSAPP_TOKEN": TOKEN, "WHATSAPP_PHONE_NUMBER_ID": NUMBER, "WHATSAPP_APP_SECRET": SECRET,
    "WHATSAPP_WEBHOOK_VERIFICATION_TOKEN": "word",
}


class Graph(Server):
    answer = b'{"messaging_product":"whatsapp","success":true}'


def webhook(call_id, sdp):
    """Returns the sample webhook of a new call, with this offer and the current time."""
    body = json.loads((SAMPLES / "connect.json").read_text())
    call = body["entry"][0]["changes"][0]["value"]["calls"][0]
    call.update(id=call_id, timestamp=str(int(time.time())), session={"sdp_type": "offer", "sdp": sdp})
    return json.dumps(body).encode()


def post(url, body):
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": signature}
    with urllib.request.urlopen(urllib.request.Request(url + "/whatsapp", body, headers), timeout=10) as reply:
        return reply.status, json.loads(reply.read())


class Caller:
    """aiortc in place of the media server of WhatsApp; unlike that, it has full ICE and sends checks."""

    async def __aenter__(self):
        self.connection, self.received = RTCPeerConnection(), 0
        self.connection.addTrack(AudioStreamTrack())

        @self.connection.on("track")
        def on_track(track):
            self.listening = asyncio.ensure_future(self._listen(track))

        await self.connection.setLocalDescription(await self.connection.createOffer())
        self.sdp = self.connection.localDescription.sdp
        return self

    async def __aexit__(self, *error):
        await self.connection.close()

    async def _listen(self, track):
        with contextlib.suppress(MediaStreamError):
            while True:
                await track.recv()
                self.received += 1

    async def answered(self, sdp):
        await self.connection.setRemoteDescription(RTCSessionDescription(sdp, "answer"))


async def asked_of_pipecat(body):
    """Returns the API requests of Pipecat's client for this webhook and at its shutdown."""
    async with Graph() as graph, aiohttp.ClientSession() as session:
        client = WhatsAppClient(TOKEN, NUMBER, session, ice_servers=[], whatsapp_secret=SECRET)
        client._whatsapp_api._whatsapp_url = f"{graph.url}/v23.0/{NUMBER}/calls"
        signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        request = WhatsAppWebhookRequest(**json.loads(body))
        assert await client.handle_webhook_request(request, None, body, signature)
        await client.terminate_all_calls()
        await client._whatsapp_api.reject_call_to_whatsapp("wacid.CHECK")
        return graph.requests


def comparable(requests):
    """Returns method, path, headers and JSON of each request, without the SDP and fields that the published samples lack."""
    told = []
    for method, path, authorization, kind, body in requests:
        asked = json.loads(body)
        asked.pop("to", None)
        if "session" in asked:
            assert asked["session"].pop("sdp").startswith("v=0\r\n")
        told.append((method, path, authorization, kind, asked))
    return told


async def messaging_requests(start):
    """the runner sends the same API requests as Pipecat's client, and aiortc talks with the runner"""
    async with Caller() as caller, Graph() as graph:
        runner = start("--messaging", "--bot", "echo", MESSAGING_API_URL=graph.url + "/v23.0", **VARIABLES)
        body = webhook("wacid.CHECK", caller.sdp)
        assert await asyncio.to_thread(post, runner.url, body) == (200, {"status": "success"})
        await until(lambda: graph.requests, "no pre_accept")
        answer = json.loads(graph.requests[0][4])["session"]["sdp"]
        await caller.answered(answer)
        await until(lambda: caller.received >= 50, "no sound of the bot")
        assert [json.loads(request[4])["action"] for request in graph.requests] == ["pre_accept", "accept"]
        assert json.loads(graph.requests[1][4])["session"]["sdp"] == answer
        # A stopping runner ends each call.
        runner.process.terminate()
        await until(lambda: len(graph.requests) == 3, "no terminate")
        bad = start("--messaging", MESSAGING_API_URL=graph.url + "/v23.0", **VARIABLES)
        await asyncio.to_thread(post, bad.url, webhook("wacid.CHECK", "v=1"))
        await until(lambda: len(graph.requests) == 4, "no reject")
        ours, received = comparable(graph.requests), caller.received
    async with Caller() as caller:
        theirs = comparable(await asked_of_pipecat(webhook("wacid.CHECK", caller.sdp)))
    assert ours == theirs, (ours, theirs)
    return f"{len(ours)} requests, {received} frames heard"


async def messaging_models(start):
    """the models of Pipecat and pywa parse the samples like the runner"""
    read = []
    for path in sorted(SAMPLES.glob("*.json")):
        name, body = path.stem, json.loads(path.read_text())
        # Pipecat supports only calls with a caller's number and rejects the rest with 422.
        unknown = ("statuses", "messages", "event-unknown", "no-from", "no-direction", "no-wa-id", "no-contacts", "no-sdp")
        if any(word in name for word in unknown):
            continue
        value = WhatsAppWebhookRequest(**body).entry[0].changes[0].value
        assert isinstance(value, WhatsAppConnectCallValue) == name.startswith("connect"), name
        read.append(name)
    assert WhatsAppApi.BASE_URL == "https://graph.facebook.com/v23.0/"
    try:
        from pywa import WhatsApp
        from pywa.types import CallConnect, CallTerminate
    except ImportError:
        return f"{len(read)} samples; pywa is not installed, so its models are not asked"
    client, models, refused = WhatsApp(phone_id=NUMBER, token=TOKEN), 0, []
    for path in sorted(SAMPLES.glob("*.json")):
        body, name = json.loads(path.read_text()), path.stem
        if not name.startswith(("connect", "terminate")):
            continue
        model = CallConnect if name.startswith("connect") else CallTerminate
        try:
            update = model.from_update(client, body)
        except KeyError as missing:
            refused.append((name, missing.args[0]))
            continue
        call = body["entry"][0]["changes"][0]["value"]["calls"][0]
        assert update.id == call["id"] and update.event == call["event"], name
        models += 1
    # Its models require fields that some published samples lack.
    assert refused == [("connect-no-contacts", "contacts"), ("connect-no-direction", "direction")], refused
    return f"{len(read)} samples of Pipecat, {models} of pywa"


CHECKS = {check.__name__: check for check in [messaging_requests, messaging_models]}
