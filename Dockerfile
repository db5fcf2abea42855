# The command oodzoo with ONNX models. Other sources of models are extras:
#
#     docker build -t oodzoo .
#     docker build -t oodzoo-timm --build-arg EXTRAS=timm,hf .
#     docker run --rm --user "$(id -u)" -e HOME=/tmp -v "$PWD:/work" oodzoo run photos/ --zoo zoo.toml --out job/
FROM python:3.12-slim

ARG EXTRAS=""
COPY pyproject.toml README.md LICENSE constraints.txt /source/
COPY src /source/src
RUN pip install --no-cache-dir -c /source/constraints.txt "/source${EXTRAS:+[$EXTRAS]}" \
    && rm -r /source \
    && useradd --create-home oodzoo

USER oodzoo
WORKDIR /work
ENTRYPOINT ["oodzoo"]
CMD ["--help"]
