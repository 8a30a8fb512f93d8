# A static-free, minimal image: the binary on distroless, as a user without rights.
# docker build -t plumbline . && docker run -p 9002:9002 -p 9003:9003 -p 9090:9090 plumbline --endpoints 10.0.0.1:8000
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY benches benches
RUN cargo build --locked --release && strip target/release/plumbline

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/plumbline /plumbline
# 65532 is distroless' nonroot, and upstream's user.
USER 65532:65532
EXPOSE 9002 9003 9090
ENTRYPOINT ["/plumbline"]
