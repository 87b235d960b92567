# docker build -t testbed .                                         torch as pip gives it, which runs on CPUs and GPUs
# docker build -t testbed --build-arg TORCH_INDEX=URL .             torch from another index, such as builds for CPUs
# docker run --rm -v "$PWD:/home/testbed" testbed demo              results come into ./results
# docker run --rm --gpus all --shm-size 8g -v "$PWD:/home/testbed" testbed eval --models ...
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG TORCH_INDEX=
ARG EXTRAS=all

# torch brings its CUDA libraries itself; the image needs none. Its own layer, since it is large and seldom changes.
RUN pip install --no-cache-dir torch torchvision ${TORCH_INDEX:+--index-url ${TORCH_INDEX}}

COPY . /source
RUN pip install --no-cache-dir "/source[${EXTRAS}]" && rm -r /source

# The working directory is the user's folder: data, registry, results. Caches go there too, so that they outlive a run.
WORKDIR /home/testbed
ENV HOME=/home/testbed
ENTRYPOINT ["testbed"]
CMD ["--help"]
