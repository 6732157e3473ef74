# One image for the operator, the load agent and the simulated engine; it holds no vLLM.
# Nothing is fetched while it is built: put the wheels into the folder `wheels` first.
#
#   pip download --dest wheels --only-binary :all: --require-hashes --no-deps \
#       --python-version 3.11 -r requirements/runtime.txt -r requirements/pip.txt
#   docker build --tag kneekeeper .
#
# The base needs Python 3.11 as `python3` and ca-certificates.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
COPY requirements/runtime.txt /build/runtime.txt
# pip runs from its own wheel. Test suites and type stubs of the libraries are a fifth of their size.
RUN --mount=type=bind,source=wheels,target=/wheels \
    set -- /wheels/pip-*.whl \
    && python3 "$1/pip" install --no-index --find-links /wheels --require-hashes --no-deps \
        --no-cache-dir --disable-pip-version-check --root-user-action ignore \
        --target /opt/kneekeeper/dependencies --requirement /build/runtime.txt \
    && find /opt/kneekeeper/dependencies -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/kneekeeper/dependencies -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.h' \) -delete

# The root file system is read-only at run time, so bytecode is written now.
FROM ${BASE} AS application
COPY operator/kneekeeper /opt/kneekeeper/app/kneekeeper
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kneekeeper/app

# The twin's kernel is compiled for any x86-64 or arm64 processor, not for the one that happens to build the image:
# numba keys its cache by processor name and features, and the kernel has no use for wide registers.
FROM ${BASE} AS compiled
COPY --from=dependencies /opt/kneekeeper/dependencies /opt/kneekeeper/dependencies
COPY --from=application /opt/kneekeeper/app /opt/kneekeeper/app
RUN PYTHONPATH=/opt/kneekeeper/app:/opt/kneekeeper/dependencies NUMBA_CACHE_DIR=/opt/kneekeeper/compiled \
    NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES='' PYTHONDONTWRITEBYTECODE=1 \
    python3 -m kneekeeper.domain.twin

# What changes most comes last, so that a change of the code adds one small layer.
FROM ${BASE}
LABEL org.opencontainers.image.title="kneekeeper" \
      org.opencontainers.image.description="Keeps vLLM deployments just below their knee: operator, load agent, simulated engine" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONPATH=/opt/kneekeeper/app:/opt/kneekeeper/dependencies \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KNEEKEEPER_COMPILED=/opt/kneekeeper/compiled \
    NUMBA_CACHE_DIR=/tmp/numba \
    NUMBA_CPU_NAME=generic \
    NUMBA_CPU_FEATURES= \
    HOME=/tmp \
    USER=kneekeeper
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python3", "-m"]
CMD ["kneekeeper.handlers"]
COPY --from=dependencies /opt/kneekeeper/dependencies /opt/kneekeeper/dependencies
COPY --from=compiled /opt/kneekeeper/compiled /opt/kneekeeper/compiled
COPY --from=application /opt/kneekeeper/app /opt/kneekeeper/app
