"""The routes. Handlers check and queue; the worker's thread does the work.

GET  /livez      that the process runs; the only route that never needs the token
GET  /health     Health        GET /events   server-sent events: see engine.protocol
GET  /budget     BudgetStatus  POST /budget  {"budget": "30%"}
GET  /forecast   Forecast
GET  /metrics    the state for Prometheus
GET  /v1/models, /v1/models/ID    POST /v1/chat/completions, /v1/completions
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.errors import StokerError
from engine.protocol import APPROXIMATE_HEADER, to_json
from engine.server import openai
from engine.server.contract import LoadedModel, Progress
from engine.server.errors import ApiError, describe, not_ready, stopping
from engine.server.events import Hub
from engine.server.fields import Fields, parse_object
from engine.server.guard import ALIVE_PATH, METRICS_PATH, Access, Guard
from engine.server.mailbox import Mailbox, call_in_loop
from engine.server.metrics import Scrapes
from engine.server.replies import Prepared
from engine.server.status import Ticker
from engine.server.wire import (
    ClientGoneError,
    EventStream,
    JsonResponse,
    error_response,
    read_body,
    unless_gone,
)
from engine.server.worker import Job, Worker
from engine.settings import ServerSettings
from engine.text.generate import Finished, GenerationEvent, TextDelta

log = logging.getLogger(__name__)

FIRST_EVENT_SECONDS = 2.0  # so long an error still gets its own HTTP status, in a stream too
KEEP_ALIVE_SECONDS = 10.0
JOIN_SECONDS = 20.0

Handler = Callable[[Request], Awaitable[Response]]
Prepare = Callable[[bytes, LoadedModel], Prepared]


class Service:
    """What the handlers share. Made in the event loop that serves them."""

    def __init__(self, load: Callable[[Progress], LoadedModel], settings: ServerSettings) -> None:
        loop = asyncio.get_running_loop()
        self.hub = Hub(loop)
        self.worker = Worker(load, self.hub, lambda: call_in_loop(loop, self.ticker.changed))
        self.ticker = Ticker(lambda: self.worker.work, self.worker.queued, self.hub.publish)
        self._scrapes = Scrapes(self.worker, self.ticker.now, settings.metrics_experts)
        self._log_interval = settings.log_interval
        # One thread, so that requests keep their order; not the worker's, so that a bad request
        # is refused and a good one tokenised while another one runs.
        self._preparer = ThreadPoolExecutor(1, "prepare")
        self._created = int(time.time())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The worker and the ticker run inside; at the end the model is closed."""
        self.hub.publish(self.worker.health)
        self.worker.start()
        ticking = [asyncio.create_task(self.ticker.run())]
        if self._log_interval:
            ticking.append(asyncio.create_task(self.ticker.log(self._log_interval)))
        try:
            yield
        finally:
            self.stop()
            for task in ticking:
                task.cancel()
            self._preparer.shutdown(wait=False, cancel_futures=True)
            if not await asyncio.to_thread(self.worker.join, JOIN_SECONDS):
                log.error("the worker did not end within %d seconds", JOIN_SECONDS)

    def stop(self) -> None:
        """End all streams, the running request and the queue, so that the server can leave."""
        self.worker.stop()
        self.hub.close()

    def model(self) -> LoadedModel:
        """The model. Raises ApiError 503 while there is none."""
        model = self.worker.model
        if model is None:
            raise not_ready(self.worker.health)
        return model

    async def alive(self, request: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def health(self, request: Request) -> Response:
        return JsonResponse(to_json(self.worker.health))

    async def events(self, request: Request) -> Response:
        reader = self.hub.subscribe()
        return EventStream(reader.frames(), lambda: self.hub.unsubscribe(reader))

    async def budget(self, request: Request) -> Response:
        """Read the budget, or change it between two steps of the running request."""
        if request.method == "POST":
            fields = Fields(parse_object(await read_body(request)))
            text = fields.text("budget")
            if not text:
                raise fields.wrong("budget", 'a text such as "auto", "6GiB" or "60%"')
            self.model()
            answer = self.worker.set_budget(text)
        else:
            self.model()
            answer = self.worker.call(lambda model: model.budget())
        return JsonResponse(to_json(await asyncio.wrap_future(answer)))

    async def forecast(self, request: Request) -> Response:
        self.model()
        answer = self.worker.call(lambda model: model.forecast())
        return JsonResponse(to_json(await asyncio.wrap_future(answer)))

    async def metrics(self, request: Request) -> Response:
        body, media_type = await self._scrapes.answer(request.headers.get("accept", ""))
        return Response(body, media_type=media_type)

    async def models(self, request: Request) -> Response:
        return JsonResponse(openai.models_body(self.model().info, self._created))

    async def one_model(self, request: Request) -> Response:
        info = self.model().info
        openai.check_model(request.path_params["name"], info)
        return JsonResponse(openai.model_body(info, self._created))

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, openai.prepare_chat)

    async def completion(self, request: Request) -> Response:
        return await self._generate(request, openai.prepare_completion)

    async def _generate(self, request: Request, prepare: Prepare) -> Response:
        response = await self._answer(request, prepare)
        bias = self.model().info.residency_bias
        if bias:
            response.headers[APPROXIMATE_HEADER] = f"residency_bias={bias:g}"
        return response

    async def _answer(self, request: Request, prepare: Prepare) -> Response:
        body = await read_body(request)
        model = self.model()
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._preparer, prepare, body, model)
        job = Job(prepared.request, Mailbox(loop))
        self.worker.submit(job)
        if not prepared.stream:
            try:
                return await unless_gone(request.receive, _whole(prepared, job.mailbox))
            finally:
                self.worker.cancel(job)
        try:
            first = await unless_gone(request.receive, _first(job.mailbox))
        except BaseException:
            self.worker.cancel(job)
            raise
        parts = _stream(prepared, job.mailbox, first)
        return EventStream(parts, lambda: self.worker.cancel(job))


async def _whole(prepared: Prepared, mailbox: Mailbox) -> Response:
    """Collect all events into one JSON object."""
    texts: list[TextDelta] = []
    while True:
        for event in await mailbox.take():
            if isinstance(event, TextDelta):
                texts.append(event)
            elif isinstance(event, Finished):
                if event.reason == "cancelled":
                    raise stopping()
                answer = TextDelta(
                    "".join(delta.text for delta in texts),
                    tuple(token for delta in texts for token in delta.tokens),
                )
                return JsonResponse(prepared.reply.whole(answer, event))


async def _first(mailbox: Mailbox) -> list[GenerationEvent]:
    """The first events, or none if they take long. Raises what went wrong until then."""
    try:
        return await asyncio.wait_for(mailbox.take(), FIRST_EVENT_SECONDS)
    except TimeoutError:
        return []


async def _stream(
    prepared: Prepared, mailbox: Mailbox, first: list[GenerationEvent]
) -> AsyncGenerator[bytes, None]:
    """The bytes of a streamed answer. Comments keep the line open in the queue and the prompt."""
    reply = prepared.reply
    yield reply.opening()
    events = first
    try:
        while True:
            for event in events:
                if isinstance(event, Finished) and event.reason == "cancelled":
                    raise stopping()
                yield reply.chunk(event)
                if isinstance(event, Finished):
                    return
            try:
                events = await asyncio.wait_for(mailbox.take(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                events = []
                yield b": still working\n\n"
    except Exception as error:  # the status is sent already: the stream has to tell
        yield reply.failure(describe(error).body)


def _guarded(handler: Handler) -> Handler:
    """Every error of a handler as a JSON answer; bugs with their traceback in the log."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientGoneError:
            return Response(status_code=499)  # nobody reads it
        except StokerError as error:
            return error_response(error)
        except Exception as error:  # the request's boundary: a bug must not end the server
            log.exception("%s %s failed", request.method, request.url.path)
            return error_response(error)

    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        text = f"{path} does not take {request.method}"
        problem = ApiError(405, text, f"Use {allowed}", code="method_not_allowed")
    else:
        problem = ApiError(error.status_code, f"There is no {path}", code="not_found")
    response = error_response(problem)
    response.headers.update(error.headers or {})
    return response


Method = Callable[[Service, Request], Awaitable[Response]]


def create_app(
    load: Callable[[Progress], LoadedModel], access: Access, settings: ServerSettings
) -> Starlette:
    """The application. `app.state.service` is there from startup on."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = Service(load, settings)
        async with app.state.service.running():
            yield

    def route(path: str, handler: Method, *methods: str) -> Route:
        async def bound(request: Request) -> Response:
            return await handler(request.app.state.service, request)

        return Route(path, _guarded(bound), methods=methods)

    return Starlette(
        routes=[
            route(ALIVE_PATH, Service.alive, "GET"),
            route("/health", Service.health, "GET"),
            route("/events", Service.events, "GET"),
            route(METRICS_PATH, Service.metrics, "GET"),
            route("/budget", Service.budget, "GET", "POST"),
            route("/forecast", Service.forecast, "GET"),
            route("/v1/models", Service.models, "GET"),
            route("/v1/models/{name:path}", Service.one_model, "GET"),
            route("/v1/chat/completions", Service.chat, "POST"),
            route("/v1/completions", Service.completion, "POST"),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
