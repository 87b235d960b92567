# docker build -t testbed .                                         CPU
# docker build -t testbed --build-arg TORCH=cu126 .                 GPU: the index of PyTorch for that CUDA version
# docker run --rm -v "$PWD:/home/testbed" testbed demo              results come into ./results
# docker run --rm --gpus all --shm-size 8g -v "$PWD:/home/testbed" testbed eval --models ...
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG TORCH=cpu
ARG EXTRAS=all

# torch brings its CUDA libraries itself; the image needs none. Its own layer, since it is large and seldom changes.
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/${TORCH}

COPY . /source
RUN pip install --no-cache-dir "/source[${EXTRAS}]" && rm -r /source

# The working directory is the user's folder: data, registry, results. Caches go there too, so that they outlive a run.
WORKDIR /home/testbed
ENV HOME=/home/testbed
ENTRYPOINT ["testbed"]
CMD ["--help"]
