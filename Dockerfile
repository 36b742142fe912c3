# One image for the five services: docker run carillon api|scheduler|worker|feedback
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# With the extra for tracing: nobody can install it into an image, and unless it is switched on it is not loaded.
COPY requirements/build.txt requirements/otel.txt requirements/
RUN python -m venv /opt/carillon \
    && /opt/carillon/bin/pip install --require-hashes -r requirements/otel.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r requirements/build.txt

COPY LICENSE README.md pyproject.toml ./
COPY services services
COPY shared shared
COPY client client
COPY contrib contrib
# Litestar asks for polyfactory and faker, which make up test data; what we use of it does not load them.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . ./client ./contrib \
    && /opt/carillon/bin/pip install --no-deps --no-index /dist/*.whl \
    && /opt/carillon/bin/pip uninstall --yes pip setuptools polyfactory faker

FROM python:3.11-slim-bookworm
COPY --from=build /opt/carillon /opt/carillon
# The environment of a container is its settings; here are those that any container needs.
ENV PATH=/opt/carillon/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CARILLON_API_HOST=0.0.0.0 \
    CARILLON_HEALTH_HOST=0.0.0.0 \
    CARILLON_LOGS_FORMAT=json
# A number, so that Kubernetes can see that it is not root. Nothing is written but, if anything, to /tmp.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/readyz', timeout=4)"]
ENTRYPOINT ["carillon"]
