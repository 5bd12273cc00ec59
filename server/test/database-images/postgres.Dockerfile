FROM scratch
COPY root /
ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin LANG=C.UTF-8 PAGER=cat PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
