-- Which releases name an image decides whether the image is kept; old deliveries are deleted by their age.
create index release_image on release (image);
create index image_id_of_cluster on image (image_id, cluster_id);
create index delivery_age on delivery (created_at);
create index outbox_age on outbox (finished_at) where state <> 'PENDING';

-- The engine that has the image of a step. Those that are known so far are mostly on the default cluster's.
alter table build_step add column cluster_id uuid;
update build_step set cluster_id = cluster_of_environment(null, organization_id);
create index build_step_cluster on build_step (cluster_id);
