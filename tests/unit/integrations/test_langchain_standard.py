"""LangChain's published suites for chat models, retrievers and document indexes, offline."""

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_tests.integration_tests import ChatModelIntegrationTests, RetrieversIntegrationTests
from langchain_tests.integration_tests.indexer import (
    AsyncDocumentIndexTestSuite,
    DocumentIndexerTestSuite,
)
from langchain_tests.unit_tests import ChatModelUnitTests

from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketIndex, KVPacketRetriever

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
]
SHORT = {"max_new_tokens": 6, "ignore_eos": True}


class _OfEngine:
    """The suites ask for classes and parameters as properties, before any fixture of theirs."""

    @pytest.fixture(autouse=True)
    def _own_engine(self, engine):
        self.engine = engine

    @property
    def chat_model_class(self):
        return ChatKVPacket

    @property
    def chat_model_params(self):
        return {"engine": self.engine, "options": SHORT}


class TestChatModelUnit(_OfEngine, ChatModelUnitTests):
    pass


class TestChatModel(_OfEngine, ChatModelIntegrationTests):
    @property
    def supported_usage_metadata_details(self):
        return {"invoke": ["cache_read_input"], "stream": ["cache_read_input"]}

    def invoke_with_cache_read_input(self, *, stream=False):
        chat = ChatKVPacket(**self.chat_model_params)
        if not stream:
            return chat.invoke("Where?", documents=["rhine"])
        chunks = list(chat.stream("Where?", documents=["rhine"]))
        return sum(chunks[1:], start=AIMessageChunk("") + chunks[0])


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _own_engine(self, engine):
        self.engine = engine

    @property
    def retriever_constructor(self):
        return KVPacketRetriever

    @property
    def retriever_constructor_params(self):
        return {"engine": self.engine}

    @property
    def retriever_query_example(self):
        return "Where does the Rhine rise?"


class TestDocumentIndex(DocumentIndexerTestSuite):
    @pytest.fixture
    def index(self, empty_engine):
        return KVPacketIndex(engine=empty_engine)


class TestAsyncDocumentIndex(AsyncDocumentIndexTestSuite):
    @pytest.fixture
    async def index(self, empty_engine):
        return KVPacketIndex(engine=empty_engine)


class TestIndexAsRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _own_engine(self, engine):
        self.engine = engine

    @property
    def retriever_constructor(self):
        return KVPacketIndex

    @property
    def retriever_constructor_params(self):
        return {"engine": self.engine}

    @property
    def retriever_query_example(self):
        return "Where does the Rhine rise?"
