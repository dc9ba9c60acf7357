# Trains and serves: `docker build -t sparrow .`, or with CUDA: `docker build -t sparrow --build-arg EXTRAS=cuda13,serve .`
# --user: the runs belong to you, and may be written to your folder. --gpus all where the image has CUDA.
#   docker run --rm --user $(id -u):$(id -g) -v $PWD:/work sparrow train examples/deepfm_criteo.yaml
#   docker run --rm -p 8080:8080 -v $PWD/exported:/work/exported sparrow serve exported --host 0.0.0.0
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
ARG EXTRAS=serve
COPY --from=build /wheels /wheels
# g++ compiles rules of your own; everything else is in the wheel.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir "$(ls /wheels/*.whl)[${EXTRAS}]" && rm -r /wheels \
    && useradd --create-home sparrow
USER sparrow
WORKDIR /work
EXPOSE 8080
ENTRYPOINT ["sparrow"]
