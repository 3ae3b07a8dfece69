"""A bot with a function and a menu of keys, as Pipecat's examples are built, for `pipecat eval`."""

import os

from pipecat.evals.transport import EvalTransportParams
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.dtmf_aggregator import DTMFAggregator
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

transport_params = {
    "eval": lambda: EvalTransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
}


async def get_weather(params: FunctionCallParams, location: str):
    """Tells the weather.

    Args:
        location: A city.
    """
    await params.result_callback({"conditions": "nice", "location": location})


async def bot(runner_args: RunnerArguments):
    transport = await create_transport(runner_args, transport_params)
    context = LLMContext(tools=[get_weather])
    user, assistant = LLMContextAggregatorPair(context)
    llm = OpenAILLMService(api_key=os.environ["OPENAI_API_KEY"])
    tts = CartesiaTTSService(api_key=os.environ["CARTESIA_API_KEY"])
    pipeline = Pipeline([transport.input(), DTMFAggregator(), user, llm, tts, transport.output(), assistant])
    worker = PipelineWorker(pipeline, idle_timeout_secs=runner_args.pipeline_idle_timeout_secs)
    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)

    @transport.event_handler("on_client_connected")
    async def on_client_connected(transport, client):
        context.add_message({"role": "developer", "content": (runner_args.body or {}).get("greeting", "Greet the user.")})
        await worker.queue_frames([LLMRunFrame()])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport, client):
        print("the harness left")
        await runner.cancel()

    await runner.add_workers(worker)
    await runner.run()
    print(f"the bot returns, a session of {runner_args.transport_type}, body {runner_args.body}")


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
