"""Flags of vLLM 0.32 that a start may carry and that change nothing in the simulation.

They are accepted with vLLM's own shape, so that a real command line starts here too, and so that the
abbreviations that argparse resolves are ambiguous where they are in vLLM. Everything else aborts the start.
"""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SWITCHES = _names("""
aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling
cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
data-parallel-multi-port-external-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager
disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log
enable-auto-tool-choice enable-batch-sharded-sampling enable-cumem-allocator enable-dbo enable-elastic-ep
enable-ep-weight-filter enable-eplb enable-expert-parallel enable-fault-tolerance
enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage enable-hc-sp
enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs enable-log-requests
enable-logging-iteration-details enable-lora enable-mamba-cache-stochastic-rounding
enable-mamba-shared-prefix-checkpoint enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds
enable-mm-processor-stats enable-moe-shared-loras enable-nccl-comm-suspend enable-offline-docs
enable-per-request-metrics enable-prompt-embeds enable-prompt-tokens-details enable-request-id-headers
enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-shm-tensor-arena
enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enable-tower-connector-lora
enable-trace-replay exclude-tools-when-tool-choice-none fail-on-environ-validation fully-sharded-loras
interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill language-model-only
log-error-stack long-prefill-token-threshold-adaptive mm-device-do-normalize mm-encoder-only numa-bind
ray-workers-use-nsight return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl
skip-mm-profiling skip-tokenizer-init sleep-mode-offload-cudagraph specialize-active-lora
swa-bounded-replay tokens-only trust-remote-code trust-request-chat-template trust-request-mm-kwargs
use-fp64-gumbel use-replayssm use-tqdm-on-load
""")
"""Without value; each also exists with `no-` before its name."""

INTEGERS = _names("""
cp-kv-cache-interleave-size cpu-distributed-timeout-seconds data-parallel-rank data-parallel-rpc-port
data-parallel-size data-parallel-size-local data-parallel-start-rank data-parallel-supervisor-port
dbo-decode-token-threshold dbo-prefill-token-threshold dcp-kv-cache-interleave-size
decode-context-parallel-size distributed-timeout-seconds dp-supervisor-probe-failure-threshold
dp-sync-interval elastic-ep-max-dp-size grpc-port h11-max-header-count h11-max-incomplete-event-size
mamba-block-size mamba-cache-philox-rounds master-port max-cpu-loras max-cudagraph-capture-size
max-log-len max-logprobs max-lora-cls-labels max-loras max-num-queued-reqs max-num-queued-tokens
max-parallel-loading-workers mm-shm-cache-max-object-size-mb nnodes node-rank offload-group-size
offload-num-in-group offload-prefetch-step pipeline-parallel-size prefill-context-parallel-size
prefill-schedule-interval prefix-cache-retention-interval prefix-match-unit renderer-num-workers
replayssm-buffer-len safetensors-prefetch-block-size safetensors-prefetch-num-threads shutdown-timeout
spec-tokens sse-keep-alive-interval ssl-cert-reqs stream-interval ubatch-size
""")
"""With one integer."""

LISTS = _names("""
allowed-media-domains collect-detailed-traces cpu-offload-params cudagraph-capture-sizes device-ids
kv-cache-dtype-skip-layers logits-processors lora-modules lora-target-modules numa-bind-cpus
numa-bind-nodes offload-params sleep-preserve-parameter-names
""")
"""With one value or more."""

VALUES = _names("""
additional-config all2all-backend allowed-headers allowed-local-media-path allowed-methods allowed-origins
anthropic-disabled-thinking-effort attention-backend attention-config aux-output-config chat-template
chat-template-content-format code-revision cohere-format compilation-config config-format convert
cpu-offload-gb data-parallel-address data-parallel-backend dcp-comm-backend default-chat-template-kwargs
default-mm-loras device-memory-utilization diffusion-config disable-access-log-for-endpoints
distributed-executor-backend download-dir dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s
ec-manager-config ec-transfer-config engram-config eplb-config expert-placement-strategy
fault-tolerance-config fingerprint-mode fingerprint-value gdn-prefill-backend generation-config
hf-config-path hf-overrides hf-token ignore-patterns io-processor-plugin ir-op-priority jit-monitor-mode
kda-decode-backend kda-prefill-backend kernel-config kv-cache-dtype kv-cache-metrics-sample
kv-events-config kv-offloading-backend kv-offloading-size kv-transfer-config limit-mm-per-prompt
linear-backend load-format log-config-file log-level logging-config logprobs-mode lora-dtype mamba-backend
mamba-cache-dtype mamba-cache-mode mamba-config mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr
max-lora-rank media-io-kwargs middleware mm-encoder-attn-backend mm-encoder-attn-dtype
mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
mm-encoder-tp-mode mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
mm-processor-device mm-processor-kwargs mm-tensor-ipc model-class-overrides model-impl
model-loader-extra-config moe-backend offload-backend optimization-level otlp-traces-endpoint
override-generation-config per-request-spec-decode-metrics performance-mode pooler-config
prefix-caching-hash-algo profiler-config pt-load-map-location quantization quantization-config
reasoning-config reasoning-parser reasoning-parser-plugin response-role revision runner
safetensors-load-strategy scheduler-cls scheduling-policy show-hidden-metrics-for-version
sparse-indexer-topk-backend spec-method spec-model speculative-config ssl-ca-certs ssl-certfile
ssl-ciphers ssl-keyfile structured-outputs-config tokenizer tokenizer-mode tokenizer-revision
tool-call-parser tool-parser-plugin tool-server tool-strict-level uds uvicorn-log-level
video-pruning-method video-pruning-rate watermark watermark-config weight-transfer-config worker-cls
worker-extension-cls
""")
"""With one value of any form, JSON included. A dotted form (`--name.key value`) is folded into JSON."""

HUMAN_READABLE = frozenset(("max-num-queued-tokens", "safetensors-prefetch-block-size"))
"""Those among INTEGERS that may be written as `8k` or `8K`."""
