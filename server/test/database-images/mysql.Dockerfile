FROM scratch
COPY root /
ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin LANG=C.UTF-8
VOLUME /var/lib/mysql
EXPOSE 3306 33060
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["mysqld"]
