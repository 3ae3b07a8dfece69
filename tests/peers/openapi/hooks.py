"""How Schemathesis writes the bodies that are neither JSON nor forms."""

import schemathesis


@schemathesis.serializer("application/sdp", "application/trickle-ice-sdpfrag", "application/webhook+json")
def as_text(context, value):
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
