FROM scratch
COPY root /
ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin LANG=C.UTF-8
VOLUME /data
WORKDIR /data
EXPOSE 6379
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server"]
