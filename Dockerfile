# Runs the first command of the README:
#   docker build -t stepsim . && docker run --rm -v "$PWD:/out" stepsim
# Other commands: docker run --rm -v "$PWD:/out" stepsim compare FILE --topology hgx-h100
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src
WORKDIR /out
ENTRYPOINT ["stepsim"]
CMD ["simulate", "llama-3-70b", "--gpus", "64", "--plot", "step.png"]
