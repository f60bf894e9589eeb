# The server in a container, for the CPU, as a user without rights, and nothing to write to but the folder of the model:
#
#   docker build --build-arg TORCH_INDEX=<where the CPU wheels of PyTorch lie> -t efcil .
#   export EFCIL_TOKEN=$(openssl rand -hex 16)
#   docker run --read-only --tmpfs /tmp --volume models:/models --publish 8000:8000 --env EFCIL_TOKEN efcil
#
# For x86 the wheel of PyTorch that pip finds by itself brings CUDA, several gigabytes of it. The page "Get started" of
# PyTorch names the index of its CPU wheels: give that as TORCH_INDEX. Where secrets are files, end the last line with
# `efcil serve /models/model.efcil --host 0.0.0.0 --token-file /run/secrets/efcil` in the place of `--env EFCIL_TOKEN efcil`.
# HEALTHCHECK asks over http: with `--tls-cert` give `docker run` the `--health-cmd` of docs/container.md.
FROM python:3.11-slim AS build
ARG TORCH_INDEX=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/efcil
ENV PATH=/opt/efcil/bin:$PATH
WORKDIR /build
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --no-deps torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --constraint constraints.txt '.[serve,pretrained,heif]' \
    && python -c "import torch; assert torch.version.cuda is None, 'not the CPU build of PyTorch: give TORCH_INDEX'"

FROM python:3.11-slim
COPY --from=build /opt/efcil /opt/efcil
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /models --shell /usr/sbin/nologin efcil \
    && install --directory --owner efcil --group efcil /models
ENV PATH=/opt/efcil/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /models
VOLUME /models
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["efcil"]
CMD ["serve", "/models/model.efcil", "--host", "0.0.0.0"]
